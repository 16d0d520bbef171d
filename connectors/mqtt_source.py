"""The ``mqtt`` source subscribes to topics, and acknowledges a message once its record is durable.

The broker keeps the session, so messages published while the source is disconnected are delivered later. The broker
sends at most `maxInFlight` unacknowledged messages. With QoS 0 there are no acknowledgements, and messages that the
source cannot receive in time are buffered in the connection or dropped by the broker.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..api.connector import Record, Source, SourceContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .mqtt_connection import FOR_EVER, MqttConfig, MqttConnection, check, fault_of
from .texts import text_of

_WAIT_S = 0.5


@dataclass(kw_only=True)
class MqttSourceConfig(MqttConfig):
    """Settings of the ``mqtt`` source."""

    topics: list[str] = option(
        "Topics to subscribe to, optionally with the wildcards + and #. The record property mqtt.topic contains the "
        "message's topic.",
        aliases=("topic",),
    )
    qos: int = option(
        "Quality of service. 1: the broker keeps a message until its record is durable; 0: messages are lost while the "
        "source or the broker is unavailable. 2 is not supported.",
        default=1,
        limits=(0, 2),
    )
    max_in_flight: int = option(
        "Maximum number of unacknowledged messages. With MQTT 3.1.1, the broker's own limit applies instead.",
        default=5000,
        limits=(1, 65_535),
    )
    session_expiry_seconds: int = option(
        "Seconds for which the broker keeps the session and its messages while the source is disconnected; 4294967295 "
        "for no expiry, even after the source is deleted. With MQTT 3.1.1, the broker's own setting applies instead.",
        default=FOR_EVER,
        limits=(60, FOR_EVER),
    )
    batch_size: int = option("Maximum number of messages per read.", default=1000, limits=(1, 100_000))


class MqttSource(Source):
    """Reads messages from an MQTT broker."""

    config = MqttSourceConfig

    def __init__(self) -> None:
        """Create an unconnected source."""
        self._connection: MqttConnection | None = None
        self._received: list[Any] = []
        self._settled: list[tuple[int, int]] = []
        self._generation = 0  # message IDs are only valid within one connection
        self._was_open = False

    def check(self, config: MqttSourceConfig) -> None:
        """Validate the configuration."""
        check(config)
        if not config.topics:
            raise InvalidConfig("topics must not be empty")
        for topic in config.topics:
            if fault := fault_of(topic) or _fault_of_filter(topic):
                raise InvalidConfig(f"invalid topic {topic!r}: {fault}")
        if config.qos == 2:
            raise InvalidConfig(
                "qos 2 is not supported, as a killed instance would lose messages: set qos to 1, which also receives "
                "messages published with QoS 2"
            )

    def not_effectively_once(self, config: MqttSourceConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return "messages that are unacknowledged when an instance is killed are redelivered"

    def open(self, config: MqttSourceConfig, context: SourceContext) -> None:
        """Open the connector."""
        self._config = config
        self._generation += 1
        self._received, self._settled = [], []
        name = config.client_id or f"magnetar-source-{context.name}"
        topics = config.topics
        if context.parallelism > 1:
            # A shared subscription distributes the messages among the instances.
            topics = [f"$share/{name.replace('/', '-')}/{topic}" for topic in topics]
        if context.parallelism > 1 or not config.client_id:
            name = f"{name}-{context.instance_id}"
        connection = self._connection = MqttConnection(config, name, False, self._on_message)
        connection.connect(session_expiry_s=config.session_expiry_seconds, receive_maximum=config.max_in_flight)
        if self._was_open and config.qos and not connection.session_present:
            context.logger.error("the broker lost the session: messages that were not delivered yet are lost")
        connection.subscribe(topics, config.qos)
        self._was_open = True

    def _on_message(self, message: Any) -> None:
        self._received.append(message)

    def read(self) -> list[Record]:
        """Return the next records, or None if none are available yet."""
        connection = self._connection
        assert connection is not None
        self._confirm()
        deadline = time.monotonic() + _WAIT_S
        while not self._received and (left_s := deadline - time.monotonic()) > 0:
            connection.turn(left_s)
        while len(self._received) < self._config.batch_size and connection.turn(0.0):
            pass
        size = self._config.batch_size
        found, self._received = self._received[:size], self._received[size:]
        return list(map(self._record, found))

    def _record(self, message: Any) -> Record:
        try:
            topic = message.topic
        except UnicodeDecodeError as error:
            topic = text_of(error.object)
        properties = {"mqtt.topic": topic}
        if message.retain:
            properties["mqtt.retain"] = "true"
        pairs = getattr(message.properties, "UserProperty", ())
        properties |= dict(pairs)
        key = properties.pop(self._config.key_property, None)
        settle = partial(self._settle, self._generation, message.mid, message.qos) if message.qos else None
        return Record(bytes(message.payload), key, properties, acknowledge=settle)

    def _settle(self, generation: int, mid: int, qos: int) -> None:
        if generation == self._generation:
            self._settled.append((mid, qos))

    def _confirm(self) -> None:
        assert self._connection is not None
        settled, self._settled = self._settled, []
        for mid, qos in settled:
            self._connection.client.ack(mid, qos)

    def close(self) -> None:
        """Close the connector."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        settled, self._settled = self._settled, []
        for mid, qos in settled:
            connection.client.ack(mid, qos)
        connection.close()


def _fault_of_filter(topic: str) -> str:
    """Return why a string is not a valid topic filter, or an empty string."""
    levels = topic.split("/")
    if not topic:
        return "must not be empty"
    if topic.startswith("$share/"):
        return "must not be a shared subscription, as instances share messages automatically"
    if any("#" in level and (level != "#" or index < len(levels) - 1) for index, level in enumerate(levels)):
        return "# must be the last level"
    if any("+" in level and level != "+" for level in levels):
        return "+ must be a complete level"
    return ""
