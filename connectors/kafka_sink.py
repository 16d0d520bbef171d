"""The ``kafka`` sink writes records to an Apache Kafka topic.

A batch is written once Kafka has confirmed all its records. The sink assigns keys to partitions in the same way as
Kafka's Java client, and preserves the order within a partition. When a batch is retried, records that were already
confirmed are not resent. Records may be duplicated if the instance is killed between confirmation and acknowledgement,
or if the broker fails between storing and confirming them.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..api.connector import Batching, Record, RecordRefused, Sink, SinkContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .kafka import BASE64_KEY, BASE64_NAMES, Connection, KafkaConfig, cause_of, check_properties, library, properties_of

_JAVA = "org.apache.kafka.common.serialization."
_PROPERTIES = "producerConfigProperties"
_REFUSED = {
    "key.serializer": "set keySerializerClass instead",
    "value.serializer": "set valueSerializerClass instead",
    "enable.idempotence": "set acks to all instead, which enables idempotence",
}
_WINS = frozenset(("bootstrap.servers", "acks", "request.required.acks", "batch.size", "message.max.bytes"))
"""Properties with a separate option, which takes precedence, as in Pulsar."""
_AWAY_S = 2.0
"""Seconds without confirmation after which Kafka is considered unavailable if no broker is reachable."""
_STALLED_S = 60.0
"""Seconds without confirmation after which Kafka is considered unavailable even if brokers are reachable."""
_OVERHEAD_BYTES = 512
"""Maximum overhead of a batch with one record, in bytes, without its headers."""
_REFUSALS = (
    "MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_MSG_SIZE", "INVALID_RECORD", "INVALID_TIMESTAMP",
    "RECORD_LIST_TOO_LARGE", "POLICY_VIOLATION",
)  # fmt: skip


@dataclass(kw_only=True)
class KafkaSinkConfig(KafkaConfig):
    """Settings of the ``kafka`` sink."""

    acks: Literal["all", "-1", "1", "0"] = option(
        "Required confirmations. all: all in-sync replicas; 1: the leader. 0 is not supported.", default="all"
    )
    batch_size: int = option("Maximum bytes of a batch for one partition.", default=16_384, limits=(1, 100_000_000))
    max_request_size: int = option(
        "Maximum bytes per request. Larger records are rejected.",
        default=1_048_576,
        limits=(1000, 1_000_000_000),
    )
    key_serializer_class: str = option("StringSerializer or ByteArraySerializer.", default=f"{_JAVA}StringSerializer")
    value_serializer_class: str = option(
        "ByteArraySerializer or StringSerializer. Both send the bytes unchanged.", default=f"{_JAVA}ByteArraySerializer"
    )
    producer_config_properties: dict[str, Any] = option(
        "Additional producer settings, by librdkafka name.", default={}
    )  # fmt: skip
    copy_headers_enabled: bool = option("Whether to send record properties as headers.", default=False)


class KafkaSink(Sink):
    """Writes records to an Apache Kafka topic, confirmed batch by batch."""

    config = KafkaSinkConfig

    def __init__(self) -> None:
        """Create an unconnected sink. Confirmed records are kept when the sink is reopened."""
        self._confirmed: set[tuple[str, str]] = set()
        self._producer: Any = None

    def check(self, config: KafkaSinkConfig) -> None:
        """Validate the configuration."""
        config.check_connection()
        if config.acks == "0":
            raise InvalidConfig("acks 0 is not supported, as writes would not be confirmed: set acks to all or 1")
        for key, given in (
            ("keySerializerClass", config.key_serializer_class),
            ("valueSerializerClass", config.value_serializer_class),
        ):
            if given.removeprefix(_JAVA) not in ("StringSerializer", "ByteArraySerializer"):
                raise InvalidConfig(
                    f"unsupported {key} {given!r}: use StringSerializer or ByteArraySerializer, with a transform "
                    f"function if needed"
                )
        check_properties(_PROPERTIES, "Producer", self._properties(config))

    def not_effectively_once(self, config: KafkaSinkConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return "a redelivered record is written to Kafka again"

    @staticmethod
    def _properties(config: KafkaSinkConfig) -> dict[str, str]:
        found = properties_of(_PROPERTIES, config.producer_config_properties, _REFUSED)
        return {name: value for name, value in found.items() if name not in _WINS}

    def batching(self, config: KafkaSinkConfig) -> Batching:
        """Return the batch limits."""
        return Batching(records=5000, size=4 << 20)

    def open(self, config: KafkaSinkConfig, context: SinkContext) -> None:
        """Open the connector."""
        kafka = self._kafka = library()
        self._config = config
        self._context = context
        self._connection = Connection(config, context.logger)
        topic = self._connection.describe(kafka)
        properties = self._properties(config)
        self._needs_key = topic.is_compacted
        self._largest = config.max_request_size
        if topic.largest and not {"compression.type", "compression.codec"} & properties.keys():
            # Records that Kafka would reject are not sent, as the rest of their batch would fail with them.
            self._largest = min(self._largest, topic.largest)
        settings = {
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            **properties,
            **config.connection(),
            "acks": config.acks,
            "enable.idempotence": config.acks in ("all", "-1"),
            "batch.size": config.batch_size,
            "message.max.bytes": config.max_request_size,
            "delivery.report.only.error": True,
            "error_cb": self._connection.failed,
        }
        try:
            self._producer = kafka.Producer(settings)
        except kafka.KafkaException as error:
            raise InvalidConfig(cause_of(error)) from error

    def write_batch(self, records: Sequence[Record]) -> None:
        """Write a batch of records durably."""
        messages = [self._message(record, index) for index, record in enumerate(records)]
        done = self._confirmed
        left = [index for index, record in enumerate(records) if (record.topic, record.message_id) not in done]
        failed = self._send({index: messages[index] for index in left})
        refused = [index for index in sorted(failed) if failed[index].name() in _REFUSALS]
        if not failed:
            done.clear()
            return
        done.update((records[index].topic, records[index].message_id) for index in left if index not in failed)
        for index in refused:
            # Kafka rejects batches as a whole: the invalid record is the one that is also rejected alone.
            if not (alone := self._send({index: messages[index]})):
                done.add((records[index].topic, records[index].message_id))
            elif alone[index].name() in _REFUSALS:
                raise RecordRefused(f"record was rejected by Kafka: {cause_of(Exception(alone[index]))}", index)
            else:
                failed[index] = alone[index]
        others = [error for error in failed.values() if error.name() not in _REFUSALS]
        if others:
            raise self._connection.away(f"{len(others)} records were not confirmed: {cause_of(Exception(others[0]))}")
        done.clear()

    def _send(self, messages: Mapping[int, dict[str, Any]]) -> dict[int, Any]:
        """Send messages, wait for all outcomes, and return the errors of failed messages."""
        kafka, producer, topic = self._kafka, self._producer, self._config.topic
        failed: dict[int, Any] = {}

        def report(index: int) -> Any:
            def delivered(error: Any, _message: Any) -> None:
                if error is not None:
                    failed[index] = error

            return delivered

        for index, message in messages.items():
            try:
                producer.produce(topic, on_delivery=report(index), **message)
            except BufferError:
                self._wait(producer)
                producer.produce(topic, on_delivery=report(index), **message)
            except kafka.KafkaException as error:
                failed[index] = error.args[0]
        self._wait(producer)
        return failed

    def _wait(self, producer: Any) -> None:
        """Wait until no message is in flight. Messages that make no progress are purged and count as failed."""
        left, moved_s = len(producer), time.monotonic()
        while now := producer.flush(0.1):
            if now != left:
                left, moved_s = now, time.monotonic()
            waited_s = time.monotonic() - moved_s
            gives_up = self._connection.is_away or self._context.is_stopping()
            if waited_s > _STALLED_S or (gives_up and waited_s > _AWAY_S):
                producer.purge()
                producer.flush(_AWAY_S)
                return
        self._connection.forget()

    def _message(self, record: Record, index: int) -> dict[str, Any]:
        """Return the arguments of `produce`. Raises RecordRefused for records that Kafka would reject."""
        value, key = _as_bytes(record.value, index), None if record.key is None else record.key.encode()
        properties = dict(record.properties)
        if key is not None and properties.pop(BASE64_KEY, "") == "true":
            key = _unpacked(key.decode(), BASE64_KEY, index)
        if key is None and self._needs_key:
            raise RecordRefused(f"record has no key, but topic {self._config.topic!r} is compacted", index)
        headers: list[tuple[str, bytes]] = []
        if self._config.copy_headers_enabled:
            packed = properties.pop(BASE64_NAMES, "").split(",")
            headers = [
                (name, _unpacked(text, name, index) if name in packed else text.encode())
                for name, text in properties.items()
                if not name.startswith("__kafka_")
            ]
        size = len(value or b"") + len(key or b"") + sum(len(name) + len(text) + 10 for name, text in headers)
        if size + _OVERHEAD_BYTES > self._largest:
            raise RecordRefused(
                f"record of {size} bytes exceeds the maximum batch size of {self._largest} bytes", index
            )
        message: dict[str, Any] = {"value": value, "key": key}
        if headers:
            message["headers"] = headers
        if 0 < record.event_time_ms < 1 << 63:
            message["timestamp"] = record.event_time_ms
        return message

    def close(self) -> None:
        """Close the connector."""
        if self._producer is not None:
            producer, self._producer = self._producer, None
            producer.purge()
            producer.flush(1.0)


def _as_bytes(value: Any, index: int) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    try:
        if isinstance(value, str):
            return value.encode()
        return json.dumps(value, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise RecordRefused(f"value is not bytes, a string or valid JSON: {error}", index) from error


def _unpacked(text: str, name: str, index: int) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RecordRefused(f"property {name!r} is not valid base64: {error}", index) from error
