"""The ``redis-streams`` source reads entries of Redis streams as a consumer in a group.

An entry is acknowledged (XACK) once its record is durable. Entries that were read but not acknowledged are reread: an
instance starts with its own pending entries, and claims entries left pending for too long by other consumers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from ..api.connector import Record, Source, SourceContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .redis_connection import RedisConfig, connect, nodes_of, translated
from .texts import text_of

_BLOCK_MS = 500
_ACKS_MAX = 1000  # maximum IDs per XACK
_CLAIMS_MAX = 10  # maximum requests per read

_Id = tuple[str, bytes]


@dataclass(kw_only=True)
class RedisStreamsConfig(RedisConfig):
    """Settings of the ``redis-streams`` source."""

    streams: list[str] = option(
        "Stream names. With clientMode Cluster, only one stream is supported.", aliases=("stream",)
    )
    group: str = option("Consumer group; created if it does not exist. Empty for the source name.", default="")
    start_from: Literal["earliest", "latest"] = option(
        "Where a consumer group created by the source starts. earliest: at the first entry; latest: at the next new "
        "entry.",
        default="earliest",
    )
    value_field: str = option(
        "Field that contains the record value; other fields become properties. If an entry has no such field, the "
        "value is a JSON object of all its fields.",
        default="value",
    )
    key_field: str = option("Field that contains the record key; empty for no key.", default="key")
    batch_size: int = option("Maximum number of entries per read and stream.", default=1000, limits=(1, 100_000))
    claim_idle_ms: int = option(
        "Time after which to claim entries that another consumer of the group has read but not acknowledged, in "
        "milliseconds.",
        default=60_000,
        limits=(100, None),
    )
    delete_acknowledged: bool = option(
        "Whether to delete entries from the stream once they are acknowledged. Other groups lose them as well.",
        default=False,
    )


class RedisStreamsSource(Source):
    """Reads entries of Redis streams as a consumer in a group."""

    config = RedisStreamsConfig

    def __init__(self) -> None:
        """Create an unconnected source."""
        self._client: Any = None
        self._on_the_way: set[_Id] = set()  # read since opening, not acknowledged yet
        self._settled: list[_Id] = []  # durable; kept when reopened, as IDs remain valid
        self._unread: dict[str, bytes] = {}  # streams with pending entries of this consumer, and where to continue
        self._next_claim_s = 0.0

    def check(self, config: RedisStreamsConfig) -> None:
        """Validate the configuration."""
        nodes_of(config)
        if not config.streams:
            raise InvalidConfig("streams must not be empty")
        if config.client_mode == "Cluster" and len(config.streams) > 1:
            raise InvalidConfig(f"clientMode Cluster supports only one stream per source, not {len(config.streams)}")

    def not_effectively_once(self, config: RedisStreamsConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return "entries that are unacknowledged when an instance is killed are reread"

    def open(self, config: RedisStreamsConfig, context: SourceContext) -> None:
        """Open the connector."""
        self._config = config
        self._log = context.logger
        self._group = config.group or context.name
        self._consumer = f"{context.name}-{context.instance_id}"
        self._client = connect(config, "redis-streams")
        for stream in config.streams:
            self._make_group(stream)
        # Entries read before reopening may never be reported as durable, so they must be reread.
        self._on_the_way = set(self._settled)
        self._unread = dict.fromkeys(config.streams, b"0-0")

    def _make_group(self, stream: str) -> None:
        import redis

        start = "0-0" if self._config.start_from == "earliest" else "$"
        with translated(self._config):
            try:
                self._client.xgroup_create(stream, self._group, start, mkstream=True)
            except redis.exceptions.ResponseError as error:
                if str(error).startswith("WRONGTYPE"):
                    raise InvalidConfig(f"streams: {stream!r} is not a stream: {error}") from error
                if not str(error).startswith("BUSYGROUP"):
                    raise

    def read(self) -> list[Record]:
        """Return the next records, or None if none are available yet."""
        self._acknowledge()
        if self._unread:
            return self._left_pending()
        if time.monotonic() >= self._next_claim_s:
            # Set before the call, so that a failing claim is not repeated on every read.
            self._next_claim_s = time.monotonic() + self._config.claim_idle_ms / 2000
            if records := self._claimed():
                return records
        return self._read(dict.fromkeys(self._config.streams, ">"), self._block_ms())

    def _block_ms(self) -> int:
        return max(min(_BLOCK_MS, self._config.operation_timeout // 2), 1)

    def _read(self, streams: dict[str, Any], block_ms: int | None) -> list[Record]:
        import redis

        with translated(self._config):
            try:
                found = self._client.xreadgroup(
                    self._group, self._consumer, streams, count=self._config.batch_size, block=block_ms
                )
            except redis.exceptions.ResponseError as error:
                if not str(error).startswith("NOGROUP"):
                    raise
                for stream in streams:  # a stream was deleted, and may have been recreated
                    self._make_group(stream)
                return []
        pairs = found.items() if isinstance(found, dict) else found or ()
        records: list[Record] = []
        for name, entries in pairs:
            stream = text_of(name)
            if stream in self._unread:
                self._unread[stream] = entries[-1][0] if entries else b""
            records += self._records(stream, entries)
        return records

    def _left_pending(self) -> list[Record]:
        """Return this consumer's pending entries from before the start."""
        streams = dict(self._unread)
        records = self._read(streams, None)
        self._unread = {stream: last for stream, last in self._unread.items() if last and last != streams[stream]}
        return records

    def _claimed(self) -> list[Record]:
        """Claim and return entries left pending for too long by other consumers."""
        config = self._config
        # Records are created at the end, because an entry counts as in flight only if it is returned.
        found: list[tuple[str, list[Any]]] = []
        for stream in config.streams:
            cursor: Any = b"0-0"
            while True:
                with translated(config):
                    answer = self._client.xautoclaim(
                        stream, self._group, self._consumer, config.claim_idle_ms, cursor, count=config.batch_size
                    )
                cursor = answer[0]
                found.append((stream, answer[1]))
                if cursor in (b"0-0", "0-0") or len(found) >= _CLAIMS_MAX:
                    break
        return [record for stream, entries in found for record in self._records(stream, entries)]

    def _records(self, stream: str, entries: Iterable[tuple[bytes, dict[bytes, bytes] | None]]) -> list[Record]:
        records: list[Record] = []
        gone = 0
        for entry_id, fields in entries:
            place = (stream, entry_id)
            if not fields:  # trimmed or deleted while pending
                gone += 1
                self._settled.append(place)
            elif place not in self._on_the_way:
                self._on_the_way.add(place)
                records.append(self._record(place, fields))
        if gone:
            self._log.error("lost %d entries of stream %s: deleted before they were acknowledged", gone, stream)
        return records

    def _record(self, place: _Id, fields: dict[bytes, bytes]) -> Record:
        stream, entry_id = place
        texts = {text_of(name): value for name, value in fields.items()}
        key = texts.pop(self._config.key_field, None)
        value = texts.pop(self._config.value_field, None)
        if value is None:
            every = {text_of(name): text_of(content) for name, content in fields.items()}
            value, texts = json.dumps(every, ensure_ascii=False).encode(), {}
        properties = {name: text_of(content) for name, content in texts.items()}
        number = entry_id.decode()
        properties |= {"redis.stream": stream, "redis.id": number}
        return Record(
            value,
            None if key is None else text_of(key),
            properties,
            event_time_ms=int(number.partition("-")[0]) if len(number) < 24 else 0,  # if the server generated the ID
            partition=stream,
            acknowledge=partial(self._settle, place),
            fail=partial(self._on_the_way.discard, place),
        )

    def _settle(self, place: _Id) -> None:
        self._settled.append(place)

    def _acknowledge(self) -> None:
        """Acknowledge durable entries."""
        if not self._settled or self._client is None:
            return
        places = self._settled
        by_stream: dict[str, list[bytes]] = {}
        for stream, entry_id in places:
            by_stream.setdefault(stream, []).append(entry_id)
        with translated(self._config):
            pipe = self._client.pipeline(transaction=False)
            for stream, ids in by_stream.items():
                for begin in range(0, len(ids), _ACKS_MAX):
                    part = ids[begin : begin + _ACKS_MAX]
                    pipe.xack(stream, self._group, *part)
                    if self._config.delete_acknowledged:
                        pipe.xdel(stream, *part)
            pipe.execute()
        self._settled = []
        self._on_the_way.difference_update(places)

    def close(self) -> None:
        """Close the connector."""
        if self._client is None:
            return
        try:
            self._acknowledge()
        finally:
            self._client.close()
            self._client = None
