"""The ``redis`` sink runs a command for each record, with one request per batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..api.connector import Batching, Record, RecordRefused, Retry, Sink, SinkContext
from ..api.connector_config import Refusal, Unsupported, option
from ..errors import InvalidConfig
from .documents import digits_of, digits_text
from .given_again import Confirmed
from .redis_connection import RedisConfig, connect, nodes_of, passes, translated
from .texts import Template, Unfilled, payload_of, text_of

_UPSERTS = ("SET", "HSET", "SADD")
_PEM = "Java trust stores are not supported; convert the certificates to a PEM file, and set redisTlsCaFile"
_UNSUPPORTED: Unsupported = {
    "autoReconnect": Refusal("lost connections are always reopened; remove this option", (True,)),
    "requestQueue": Refusal("the sink sends one batch at a time, without a queue; set batchSize instead"),
    "tcpNoDelay": Refusal("always enabled; remove this option", (True,)),
    "redisTlsTrustStorePath": Refusal(_PEM),
    "redisTlsTrustStoreType": Refusal(_PEM),
    "redisTlsTrustStorePassword": Refusal(_PEM),
}
_STREAM_FIELDS = ("value", "key")


@dataclass(kw_only=True)
class RedisSinkConfig(RedisConfig):
    """Settings of the ``redis`` sink."""

    unsupported: ClassVar[Unsupported] = _UNSUPPORTED

    command: Literal["SET", "HSET", "SADD", "XADD", "RPUSH", "LPUSH"] = option(
        "Command to run. SET: set the value of a key; HSET: set hash fields from a JSON object; SADD: add to a set; "
        "XADD: add to a stream, with the fields value and key and one per property; RPUSH, LPUSH: append or prepend to "
        "a list. With SET and HSET, a null value deletes the key.",
        default="SET",
    )
    key: str = option(
        "Redis key. The placeholders {key}, {topic}, {message_id} and {properties.name} are replaced by values of the "
        "record. A missing record key is replaced by an empty string.",
        default="{key}",
    )
    expire_seconds: int = option(
        "Time to live of values written by SET, in seconds; 0 for unlimited.", default=0, limits=(0, None)
    )
    stream_max_length: int = option(
        "Approximate maximum number of entries in a stream, enforced by XADD; 0 for unlimited.",
        default=0,
        limits=(0, None),
    )
    batch_size: int = option("Maximum number of records per request.", default=1000, limits=(1, 100_000))
    batch_time_ms: int = option(
        "Maximum time to wait for more records, in milliseconds.", default=10, limits=(0, 60_000)
    )


class RedisSink(Sink):
    """Writes values, hashes, sets, streams or lists to Redis."""

    config = RedisSinkConfig

    def __init__(self) -> None:
        """Create an unconnected sink."""
        self._client: Any = None
        self._confirmed = Confirmed()

    def check(self, config: RedisSinkConfig) -> None:
        """Validate the configuration."""
        nodes_of(config)
        Template("key", config.key)
        if config.expire_seconds and config.command != "SET":
            raise InvalidConfig(f"expireSeconds requires command SET, not {config.command}")
        if config.stream_max_length and config.command != "XADD":
            raise InvalidConfig(f"streamMaxLength requires command XADD, not {config.command}")

    def not_effectively_once(self, config: RedisSinkConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        if config.command in _UPSERTS:
            return ""
        return f"{config.command} adds a redelivered record a second time: set command to one of {', '.join(_UPSERTS)}"

    def batching(self, config: RedisSinkConfig) -> Batching:
        """Return the batch limits."""
        return Batching(records=config.batch_size, size=8 << 20, time_s=config.batch_time_ms / 1000)

    def open(self, config: RedisSinkConfig, context: SinkContext) -> None:
        """Open the connector."""
        self._config = config
        self._key = Template("key", config.key)
        self._client = connect(config, "redis")

    def write_batch(self, records: Sequence[Record]) -> None:
        """Write a batch of records durably."""
        at_hand = list(self._confirmed.missing(records))
        commands = [self._command(index, record) for index, record in at_hand]
        config = self._config
        if config.command == "SET" and not config.expire_seconds and config.client_mode == "Standalone":
            commands = _joined(commands)
        with translated(config):
            pipe = self._client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            answers = pipe.execute(raise_on_error=False)
        self._look_at(answers, at_hand)
        self._confirmed.clear()

    def _look_at(self, answers: list[Any], at_hand: list[tuple[int, Record]]) -> None:
        """Raise the error for the first failed command."""
        faults = [position for position, answer in enumerate(answers) if isinstance(answer, Exception)]
        if not faults:
            return
        if len(answers) == len(at_hand):
            for answer, (_, record) in zip(answers, at_hand, strict=True):
                if not isinstance(answer, Exception):
                    self._confirmed.add(record)
        error = answers[faults[0]]
        if passes(error) or len(answers) != len(at_hand):
            raise Retry(f"{self._config.redis_hosts}: {error}") from error
        index = at_hand[faults[0]][0]
        raise RecordRefused(f"Redis rejected {self._config.command}: {error}", index, index) from error

    def _command(self, index: int, record: Record) -> tuple[Any, ...]:
        config, name = self._config, self._config.command
        try:
            key = self._key.of(_keyed(record) if record.key is None else record)
            if record.value is None and name in ("SET", "HSET"):
                return ("DEL", key)
            if name == "HSET":
                return ("HSET", key, *_fields_of(record.value))
            value = payload_of(record.value)
            if name == "SET":
                return (
                    ("SET", key, value, "EX", config.expire_seconds) if config.expire_seconds else ("SET", key, value)
                )
            if name == "XADD":
                limit = ("MAXLEN", "~", config.stream_max_length) if config.stream_max_length else ()
                return ("XADD", key, *limit, "*", *_entry_of(record, value))
        except (Unfilled, ValueError, TypeError) as error:
            raise RecordRefused(str(error), index) from error
        return (name, key, value)

    def close(self) -> None:
        """Close the connector."""
        if self._client is not None:
            self._client.close()
            self._client = None


def _keyed(record: Record) -> Record:
    return Record(None, "", record.properties, 0, record.topic, record.message_id)


def _joined(commands: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Combine the commands into one atomic MSET, unless some of them delete."""
    if len(commands) < 2 or any(command[0] != "SET" for command in commands):
        return commands
    return [("MSET", *(part for command in commands for part in command[1:]))]


def _fields_of(value: Any) -> list[str]:
    try:
        found = digits_of(value) if isinstance(value, bytes | str) else value
    except (ValueError, RecursionError) as error:
        raise ValueError(f"value is not valid JSON, which HSET requires: {error}") from error
    if not isinstance(found, dict) or not found:
        raise ValueError("value must be a non-empty JSON object for HSET")
    fields = [text for name, field in found.items() for text in (str(name), _field(field))]
    "".join(fields).encode()  # raises ValueError for lone surrogates
    return fields


def _field(value: Any) -> str:
    return digits_text(value) if isinstance(value, dict | list) else text_of(value)


def _entry_of(record: Record, value: bytes) -> list[str | bytes]:
    fields: list[str | bytes] = ["value", value]
    if record.key is not None:
        fields += ["key", record.key]
    for name, text in record.properties.items():
        fields += [f"properties.{name}" if name in _STREAM_FIELDS else name, text]
    return fields
