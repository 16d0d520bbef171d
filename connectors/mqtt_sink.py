"""The ``mqtt`` sink publishes records, with many in flight concurrently, and waits for the broker's confirmations."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..api.connector import Batching, Record, RecordRefused, Retry, Sink, SinkContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .given_again import Confirmed
from .mqtt_connection import MqttConfig, MqttConnection, check, fault_of, properties_of
from .texts import Template, Unfilled, payload_of

_BUSY = ("Quota exceeded", "Unspecified error", "Implementation specific error")
_WAIT_S = 0.5
_UNSAID_WINDOW = 20
_HEADER_BYTES = 16  # PUBLISH packet overhead, without topic, properties and payload


@dataclass(kw_only=True)
class MqttSinkConfig(MqttConfig):
    """Settings of the ``mqtt`` sink."""

    topic: str = option(
        "Target topic. The placeholders {key}, {topic}, {message_id} and {properties.name} are replaced by values of "
        "the record."
    )
    topic_property: str = option(
        "Record property that, if present, overrides the topic; empty to always use topic.", default=""
    )
    qos: int = option(
        "Quality of service. 0: a record counts as written once sent, and may be lost; 1: a record counts as written "
        "once the broker has confirmed it; 2: like 1, with MQTT's four-step handshake. Pulsar's default is 0.",
        default=1,
        limits=(0, 2),
    )
    retain: bool = option("Whether the broker retains the messages.", default=False)
    max_in_flight: int = option(
        "Maximum number of unconfirmed messages. The broker may allow fewer. With MQTT 3.1.1 and QoS 2, the limit is "
        "20.",
        default=1000,
        limits=(1, 65_000),
    )
    clean_start: bool = option("Whether each connection starts a new session.", default=True)
    batch_size: int = option("Maximum number of records per batch.", default=1000, limits=(1, 100_000))


class MqttSink(Sink):
    """Publishes messages to an MQTT broker and waits for the broker to confirm them."""

    config = MqttSinkConfig

    def __init__(self) -> None:
        """Create an unconnected sink."""
        self._connection: MqttConnection | None = None
        self._confirmed = Confirmed()

    def check(self, config: MqttSinkConfig) -> None:
        """Validate the configuration."""
        check(config)
        template = Template("topic", config.topic)
        if template.constant is not None and (fault := _fault_of_topic(template.constant)):
            raise InvalidConfig(f"invalid topic: {fault}")

    def not_effectively_once(self, config: MqttSinkConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return "messages that are unconfirmed when an instance is killed are published again"

    def batching(self, config: MqttSinkConfig) -> Batching:
        """Return the batch limits."""
        return Batching(records=config.batch_size, size=8 << 20)

    def open(self, config: MqttSinkConfig, context: SinkContext) -> None:
        """Open the connector."""
        self._config = config
        self._topic = Template("topic", config.topic)
        name = config.client_id or f"magnetar-sink-{context.name}"
        if context.parallelism > 1 or not config.client_id:
            name = f"{name}-{context.instance_id}"
        connection = self._connection = MqttConnection(config, name, config.clean_start)
        connection.connect()
        # With 3.1.1 the broker does not announce its limit, and Mosquitto closes connections that exceed it with QoS 2.
        allowed = connection.receive_maximum if connection.is_5 or config.qos < 2 else _UNSAID_WINDOW
        self._window = min(config.max_in_flight, allowed)
        self._packet_max = connection.packet_max

    def write_batch(self, records: Sequence[Record]) -> None:
        """Write a batch of records durably."""
        connection = self._connection
        assert connection is not None
        unsent = deque((index, record, *self._message(index, record)) for index, record in self._missing(records))
        config, client = self._config, connection.client
        unconfirmed: dict[int, tuple[int, Record]] = {}
        refused: dict[int, str] = {}
        deadline = time.monotonic() + config.connection_timeout_ms / 1000
        while unsent or unconfirmed:
            while unsent and len(unconfirmed) < self._window:
                index, record, topic, payload, properties = unsent.popleft()
                info = client.publish(topic, payload, config.qos, config.retain, properties)
                unconfirmed[info.mid] = (index, record)
            connection.turn(0.0 if connection.confirmed else _WAIT_S)
            answers, connection.confirmed = connection.confirmed, []
            for mid, reason in answers:
                if mid not in unconfirmed:
                    continue
                index, record = unconfirmed.pop(mid)
                if reason:
                    refused[index] = reason
                else:
                    self._confirmed.add(record)
            if answers:
                deadline = time.monotonic() + config.connection_timeout_ms / 1000
            elif time.monotonic() > deadline:
                raise Retry(f"{config.server_host}: {len(unconfirmed)} messages were not confirmed")
        if refused:
            self._raise(records, refused)
        self._confirmed.clear()

    def _missing(self, records: Sequence[Record]) -> list[tuple[int, Record]]:
        return list(self._confirmed.missing(records))

    def _raise(self, records: Sequence[Record], refused: dict[int, str]) -> None:
        index, reason = min(refused.items())
        # If all records go to the same topic, the rejection is not caused by a record.
        if reason in _BUSY or (self._topic.constant is not None and not self._config.topic_property):
            raise Retry(
                f"{self._config.server_host} rejected a message to topic {self._topic_of(records[index])!r}: {reason}"
            )
        raise RecordRefused(
            f"broker rejected a message to topic {self._topic_of(records[index])!r}: {reason}", index, index
        )

    def _topic_of(self, record: Record) -> str:
        name = self._config.topic_property
        return (record.properties.get(name) if name else None) or self._topic.of(record)

    def _message(self, index: int, record: Record) -> tuple[str, bytes, Any]:
        """Return a record's topic, payload and properties."""
        try:
            topic, payload = self._topic_of(record), payload_of(record.value)
        except (Unfilled, ValueError, TypeError) as error:
            raise RecordRefused(str(error), index) from error
        pairs = self._pairs(record)
        texts = [text for pair in pairs for text in pair]
        size = _HEADER_BYTES + len(payload) + len(topic.encode()) + sum(len(text.encode()) + 5 for text in texts)
        fault = _fault_of_topic(topic)
        if fault:
            fault = f"invalid topic: {fault}"
        elif size > self._packet_max:
            fault = f"message of {size} bytes exceeds the broker's limit of {self._packet_max} bytes"
        else:
            fault = next((f"invalid property: {fault}" for fault in map(fault_of, texts) if fault), "")
        if fault:
            raise RecordRefused(fault, index)
        if not pairs:
            return topic, payload, None
        properties = properties_of("PUBLISH")
        properties.UserProperty = pairs
        return topic, payload, properties

    def _pairs(self, record: Record) -> list[tuple[str, str]]:
        if self._config.protocol_version != "5":
            return []
        name = self._config.key_property
        pairs = [(key, text) for key, text in record.properties.items() if key != name or record.key is None]
        if name and record.key is not None:
            pairs.append((name, record.key))
        return pairs

    def idle(self) -> None:
        """Keep the connection alive while no records arrive."""
        if self._connection is not None:
            self._connection.turn(0.0)

    def close(self) -> None:
        """Close the connector."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _fault_of_topic(topic: str) -> str:
    if not topic:
        return "must not be empty"
    if "#" in topic or "+" in topic:
        return f"{topic!r} must not contain wildcards"
    return fault_of(topic)
