"""The ``influxdb`` sink writes points with the line protocol of InfluxDB 1 and 2.

A point replaces any point with the same measurement, tags and time, so redelivering a record changes nothing if its
time is unique. Two records with the same time and tags would become one point. Event times, which are in milliseconds,
are therefore made unique by adding nanoseconds derived from the record's position in its topic.

The sink was tested with InfluxDB 1.6. It has not been tested with an InfluxDB 2 server.
"""

from __future__ import annotations

import gzip
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

from ..api.connector import Batching, Record, RecordRefused, Retry, Sink, SinkContext
from ..api.connector_config import Refusal, Unsupported, option
from ..errors import InvalidConfig
from .documents import Outcome, Outcomes, document_of, halved
from .texts import failure_of

_NANOSECONDS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass
class InfluxdbConfig:
    """Settings of the ``influxdb`` sink."""

    unsupported: ClassVar[Unsupported] = {
        "logLevel": Refusal(
            "requests are not logged, and errors contain InfluxDB's response; remove this option", ("NONE",)
        ),
    }

    influxdb_url: str = option("InfluxDB URL, such as http://localhost:8086.", aliases=("url",))
    database: str = option("InfluxDB 1: database.", default="")
    username: str = option("InfluxDB 1: user name; empty for no authentication.", default="", secret=True)
    password: str = option("InfluxDB 1: password of the user.", default="", secret=True)
    retention_policy: str = option("InfluxDB 1: retention policy; empty for the database's default.", default="")
    consistency_level: Literal["ALL", "ANY", "ONE", "QUORUM"] = option(
        "InfluxDB 1: number of cluster nodes that must confirm a write.", default="ONE"
    )
    organization: str = option("InfluxDB 2: organization.", default="")
    bucket: str = option("InfluxDB 2 (not tested with a server): bucket.", default="")
    token: str = option("InfluxDB 2: access token.", default="", secret=True)
    precision: Literal["ns", "us", "ms", "s"] = option("Unit of timestamps in values.", default="ns")
    measurement: str = option(
        "Measurement for values without measurement and fields. All keys of such values become fields, except those in "
        "tags.",
        default="",
    )
    tags: list[str] = option(
        "Keys that become tags instead of fields, in values without measurement and fields.", default=[]
    )
    timestamp_required: bool = option(
        "Whether to reject records that have neither a timestamp in the value nor an event time, instead of writing "
        "them with the current time. Required for EFFECTIVELY_ONCE.",
        default=False,
    )
    gzip_enable: bool = option("Whether to compress requests.", default=False)
    batch_size: int = option("Maximum number of points per request.", default=1000, limits=(1, 100_000))
    batch_time_ms: int = option(
        "Maximum time to wait for more points, in milliseconds.", default=100, limits=(0, 60_000)
    )
    timeout: float = option("Response timeout in seconds.", default=30.0, limits=(0.01, 3600))


class InfluxdbSink(Sink):
    """Writes points to InfluxDB from values {measurement, tags, fields, timestamp} or from flat JSON objects."""

    config = InfluxdbConfig

    def __init__(self) -> None:
        self._outcomes = Outcomes()

    def check(self, config: InfluxdbConfig) -> None:
        """Validate the configuration."""
        if not config.influxdb_url.startswith(("http://", "https://")):
            raise InvalidConfig(
                f"invalid influxdbUrl {config.influxdb_url!r}: expected a URL starting with http:// or https://"
            )
        if bool(config.database) == bool(config.bucket):
            raise InvalidConfig("set either database for InfluxDB 1, or bucket, organization and token for InfluxDB 2")
        if config.bucket and not config.organization:
            raise InvalidConfig("bucket requires organization")
        if config.tags and not config.measurement:
            raise InvalidConfig("tags requires measurement")

    def not_effectively_once(self, config: InfluxdbConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        if config.timestamp_required:
            return ""
        return "a record without a time is written with the current time: set timestampRequired to true"

    def batching(self, config: InfluxdbConfig) -> Batching:
        """Return the batch limits."""
        return Batching(config.batch_size, 4 << 20, config.batch_time_ms / 1000)

    def open(self, config: InfluxdbConfig, context: SinkContext) -> None:
        """Open the connector."""
        import httpx

        self._config = config
        headers = {"content-type": "text/plain; charset=utf-8"}
        if config.gzip_enable:
            headers["content-encoding"] = "gzip"
        base = config.influxdb_url.rstrip("/")
        if config.database:
            given = {"db": config.database, "rp": config.retention_policy, "precision": "ns"}
            given["consistency"] = config.consistency_level.lower()
            self._url, auth = f"{base}/write", (config.username, config.password) if config.username else None
        else:
            given = {"org": config.organization, "bucket": config.bucket, "precision": "ns"}
            self._url, auth = f"{base}/api/v2/write", None
            if config.token:
                headers["authorization"] = f"Token {config.token}"
        self._parameters = {key: value for key, value in given.items() if value}
        self._client = httpx.Client(headers=headers, timeout=config.timeout, trust_env=False, auth=auth)
        self._errors: Any = httpx.HTTPError

    def write_batch(self, records: Sequence[Record]) -> None:
        """Write a batch of records durably."""
        self._outcomes.write(records, self._write)

    def close(self) -> None:
        """Close the connector."""
        if hasattr(self, "_client"):
            self._client.close()

    def _write(self, records: Sequence[Record]) -> list[Outcome]:
        outcomes: list[Outcome] = [None] * len(records)
        lines: list[tuple[int, bytes]] = []
        for index, record in enumerate(records):
            try:
                lines.append((index, line_of(record, self._config)))
            except RecordRefused as error:
                outcomes[index] = str(error)
        if lines:
            sent = halved(lines, self._send, lambda cause: True)
            for (index, _), outcome in zip(lines, sent, strict=True):
                outcomes[index] = outcome
        return outcomes

    def _send(self, lines: Sequence[tuple[int, bytes]]) -> Outcome:
        """Write lines. A resent point replaces itself, so a retry may split the lines differently."""
        body = b"\n".join(line for _, line in lines)
        content = gzip.compress(body, 1) if self._config.gzip_enable else body
        try:
            answer = self._client.post(self._url, params=self._parameters, content=content)
        except self._errors as error:
            return Retry(f"{self._url}: {failure_of(error, self._config.timeout)}")
        if answer.is_success:
            return None
        text = f"{self._url} returned {answer.status_code}: {_cause(answer.text)}"
        if answer.status_code in (400, 413, 422):
            return text
        after = answer.headers.get("retry-after", "")
        return Retry(text, float(after) if after.isdigit() else 0.0)


def _cause(answer: str) -> str:
    try:
        reply = json.loads(answer)
        return str(reply.get("error") or reply.get("message") or answer)[:300]
    except (ValueError, AttributeError):
        return " ".join(answer.split())[:300]


def line_of(record: Record, config: InfluxdbConfig) -> bytes:
    """Convert a record to line protocol, with its time in nanoseconds."""
    value = document_of(record)
    when = _time_ns(value, record, config)
    if isinstance(value.get("measurement"), str) and isinstance(value.get("fields"), dict):
        measurement, fields, tags = value["measurement"], value["fields"], value.get("tags") or {}
        if not isinstance(tags, dict):
            raise RecordRefused("tags must be a JSON object")
    elif config.measurement:
        measurement = config.measurement
        tags = {key: value[key] for key in config.tags if key in value}
        fields = {key: one for key, one in value.items() if key not in tags and key != "timestamp"}
    else:
        raise RecordRefused("value has no measurement and fields, and the measurement option is not set")
    head = [_name("measurement", measurement, ", ")]
    head += [
        f"{_name('tag', key, ',= ')}={_name('tag value', _tag(one), ',= ')}"
        for key, one in sorted(tags.items())
        if one is not None and one != ""
    ]
    body = [f"{_name('field', key, ',= ')}={_field(key, one)}" for key, one in fields.items() if one is not None]
    if not body:
        raise RecordRefused("value has no non-null fields")
    try:
        return f"{','.join(head)} {','.join(body)} {when}".encode()
    except UnicodeEncodeError as error:
        raise RecordRefused(f"value is not valid UTF-8: {error.reason}") from error


def _time_ns(value: dict[str, Any], record: Record, config: InfluxdbConfig) -> int:
    given = value.get("timestamp")
    if given is not None:
        try:
            when = int(given) * _NANOSECONDS[config.precision]
        except (ValueError, TypeError, OverflowError) as error:
            raise RecordRefused(f"invalid timestamp {given!r}: expected a number in {config.precision}") from error
        if isinstance(given, bool) or abs(when) >= 1 << 63:
            raise RecordRefused(f"invalid timestamp {given!r}: out of range")
        return when
    if record.event_time_ms:
        return record.event_time_ms * 1_000_000 + record.sequence % 1_000_000
    if config.timestamp_required:
        raise RecordRefused("record has neither a timestamp in its value nor an event time")
    return time.time_ns()


def _tag(value: Any) -> str:
    if isinstance(value, dict | list):
        raise RecordRefused("invalid tag value: expected a string, number or boolean")
    return value if isinstance(value, str) else json.dumps(value)


@lru_cache(4096)
def _name(what: str, text: str, special: str) -> str:
    if not text or text.endswith("\\") or "\n" in text or "\r" in text:
        raise RecordRefused(f"invalid {what} {text!r}: must not be empty, contain a line break or end in a backslash")
    for character in special:
        text = text.replace(character, f"\\{character}")
    return text


def _field(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise RecordRefused(f"field {key!r}: {value} does not fit into 64 bits")
        return f"{value}i"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise RecordRefused(f"field {key!r} is not a finite number")
        return repr(value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    raise RecordRefused(f"field {key!r} must be a string, number or boolean, not {type(value).__name__}")
