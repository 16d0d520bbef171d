"""Shared parts of the ``mqtt`` source and sink: connection settings and the connection.

The library runs on the connector's thread (`MqttConnection.turn`), so that no other thread can fail unnoticed. The
drawback is that if the pipeline makes no call for 1.5 keep-alive intervals, the broker closes the connection, and the
next call reopens it.
"""

from __future__ import annotations

import contextlib
import os
import select
import ssl
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from socket import socket as Socket
from typing import Any, Literal

from ..api.connector import Retry
from ..api.connector_config import option
from ..errors import InvalidConfig
from .libraries import need

FOR_EVER = 0xFFFF_FFFF
_TEXT_MAX = 65_535  # maximum bytes of a string in MQTT
_TURNS_MAX = 1000  # maximum packets per call
_PACKET_MAX = 268_435_455  # maximum bytes of a packet in MQTT
_CLOSE_S = 2.0  # time for the broker to read the data sent before a disconnect


@dataclass(kw_only=True)
class MqttConfig:
    """Connection settings of the ``mqtt`` connectors."""

    server_host: str = option("Broker host.", aliases=("host",))
    server_port: int = option("Broker port.", default=1883, aliases=("port",), limits=(1, 65_535))
    client_id: str = option(
        "Client ID of the session; empty to derive it from the connector name. With more than one instance, each "
        "appends its number.",
        default="",
    )
    username: str = option("User name; empty for no authentication.", default="", secret=True)
    password: str = option("Password of the user.", default="", secret=True)
    protocol_version: Literal["5", "3.1.1"] = option(
        "MQTT version. Version 3.1.1 does not support properties, so records have no properties and no key.",
        default="5",
    )
    keep_alive_interval_sec: int = option("Keep-alive interval, in seconds.", default=60, limits=(5, 65_535))
    connection_timeout_ms: int = option(
        "Timeout for connecting and for responses, in milliseconds.", default=10_000, limits=(100, 600_000)
    )
    ssl_enabled: bool = option("Whether to use TLS.", default=False)
    ssl_ca_file: str = option("PEM file with trusted CA certificates; empty for the system certificates.", default="")
    key_property: str = option("User property that contains the record key; empty for no key.", default="pulsar-key")


def check(config: MqttConfig) -> None:
    """Raise InvalidConfig, with the option name, for invalid or contradictory settings."""
    if not config.server_host.strip() or "/" in config.server_host:
        raise InvalidConfig(f"invalid serverHost {config.server_host!r}: expected a host name or address")
    if config.password and not config.username:
        raise InvalidConfig("password requires username")
    if config.ssl_ca_file and not config.ssl_enabled:
        raise InvalidConfig("sslCaFile requires sslEnabled")
    for key, text in (("clientId", config.client_id), ("keyProperty", config.key_property)):
        if fault := fault_of(text):
            raise InvalidConfig(f"{key} {fault}")


def fault_of(text: str) -> str:
    """Return why a string is not valid in MQTT, or an empty string."""
    if "\0" in text:
        return "must not contain null characters"
    length = len(text.encode(errors="surrogatepass"))
    return f"must not exceed {_TEXT_MAX} bytes, but has {length}" if length > _TEXT_MAX else ""


def properties_of(packet: str) -> Any:
    """Return an empty set of MQTT 5 properties for a packet type."""
    packets: Any = need("mqtt", "paho.mqtt.packettypes").PacketTypes
    return need("mqtt", "paho.mqtt.properties").Properties(getattr(packets, packet))


def _read_to_the_end(socket: Socket) -> None:
    """Read and discard data until the peer closes the connection, for at most `_CLOSE_S`."""
    deadline = time.monotonic() + _CLOSE_S
    with contextlib.suppress(OSError):  # lost or timed out
        while (left_s := deadline - time.monotonic()) > 0:
            socket.settimeout(left_s)
            if not socket.recv(65_536):
                return


class MqttConnection:
    """A connection, from `connect` to `close`.

    Attributes:
        session_present: whether the broker still had the session.
        receive_maximum: number of unconfirmed messages that the broker accepts.
        packet_max: maximum packet size that the broker accepts, in bytes.
        confirmed: IDs of messages that the broker has answered, each with the reason if it was rejected; emptied by the
            caller.
    """

    def __init__(
        self, config: MqttConfig, client_id: str, clean: bool, on_message: Callable[[Any], None] | None = None
    ) -> None:
        """Create an unconnected connection.

        Args:
            config: connection settings.
            client_id: client ID of the session.
            clean: whether to start a new session.
            on_message: called with each received message, which must then be acknowledged with `client.ack`.
        """
        self.session_present = False
        self.receive_maximum = 65_535
        self.packet_max = _PACKET_MAX
        self.confirmed: list[tuple[int, str]] = []
        self._config = config
        self._where = f"{config.server_host}:{config.server_port}"
        self._answer: str | None = None
        self._granted: list[Any] | None = None
        self._lost = ""
        self._clean = clean
        paho = need("mqtt", "paho.mqtt.client")
        self.is_5 = config.protocol_version == "5"
        more = {} if self.is_5 else {"clean_session": clean}
        self.client = client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id,
            protocol=paho.MQTTv5 if self.is_5 else paho.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
            **more,
        )
        client.max_inflight_messages = 0  # the sink limits the number of messages in flight
        client.connect_timeout = config.connection_timeout_ms / 1000
        if config.username:
            client.username_pw_set(config.username, config.password or None)
        if config.ssl_enabled:
            try:
                client.tls_set_context(ssl.create_default_context(cafile=config.ssl_ca_file or None))
            except (OSError, ssl.SSLError) as error:
                raise InvalidConfig(f"cannot read sslCaFile {config.ssl_ca_file!r}: {error}") from error
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_publish = self._on_publish
        if on_message is not None:
            client.on_message = lambda _client, _data, message: on_message(message)

    def connect(self, *, session_expiry_s: int = 0, receive_maximum: int = 0) -> None:
        """Connect, and wait until the broker has accepted the connection.

        Args:
            session_expiry_s: how long the broker keeps the session, in seconds; MQTT 5 only.
            receive_maximum: number of unacknowledged messages that the broker may send, or 0 for its default; MQTT 5
              only.

        Raises:
            Retry: the broker is unavailable or refused the connection.
        """
        config, client = self._config, self.client
        more: dict[str, Any] = {}
        if self.is_5:
            properties = properties_of("CONNECT")
            properties.SessionExpiryInterval = session_expiry_s
            if receive_maximum:
                properties.ReceiveMaximum = receive_maximum
            more = {"clean_start": self._clean, "properties": properties}
        try:
            client.connect(config.server_host, config.server_port, config.keep_alive_interval_sec, **more)
        except (OSError, ValueError) as error:
            raise Retry(f"{self._where}: {error}") from error
        self._wait_for(lambda: self._answer is not None, "CONNACK")
        if self._answer:
            raise Retry(f"{self._where} refused the connection: {self._answer}")

    def subscribe(self, topics: list[str], qos: int) -> None:
        """Subscribe, and wait until the broker has granted the subscription."""
        if self.is_5:
            from paho.mqtt.subscribeoptions import SubscribeOptions

            # Request retained messages only for new subscriptions, not on each connection.
            asked: list[Any] = [
                (
                    topic,
                    SubscribeOptions(
                        qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB, retainAsPublished=True
                    ),
                )
                for topic in topics
            ]
        else:
            asked = [(topic, qos) for topic in topics]
        self._granted = None
        self.client.subscribe(asked)
        self._wait_for(lambda: self._granted is not None, "SUBACK")
        granted: list[Any] = self._granted or []
        for topic, reason in zip(topics, granted, strict=False):
            if reason.is_failure:
                raise Retry(f"{self._where} refused the subscription to topic {topic!r}: {reason}")

    def turn(self, timeout_s: float) -> bool:
        """Receive and send pending packets. Return whether any were received.

        Args:
            timeout_s: how long to wait for packets.

        Raises:
            Retry: the connection was lost.
        """
        client = self.client
        found = False
        for count in range(_TURNS_MAX):
            self._raise_if_lost()
            socket = client.socket()
            if socket is None:
                if not self._answer:
                    raise Retry(f"{self._where}: connection lost")
                return found  # the broker refused the connection
            poll = select.poll()  # supports any descriptor, unlike select
            poll.register(socket, select.POLLIN | (select.POLLOUT if client.want_write() else 0))
            pending = getattr(socket, "pending", None)
            is_pending = pending is not None and pending() > 0
            ready = poll.poll(0 if count or is_pending else int(timeout_s * 1000))
            events = ready[0][1] if ready else 0
            if not events and not is_pending:
                break
            try:
                if events & select.POLLOUT:
                    client.loop_write()
                if is_pending or events & ~select.POLLOUT:
                    found = True
                    client.loop_read()
            except (ValueError, struct.error, IndexError) as error:
                raise Retry(f"{self._where} sent an invalid packet: {error}") from error
        client.loop_misc()
        self._raise_if_lost()
        return found

    def _raise_if_lost(self) -> None:
        if self._lost:
            raise Retry(f"{self._where}: {self._lost}")

    def _wait_for(self, is_there: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self._config.connection_timeout_ms / 1000
        while not is_there():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise Retry(f"{self._where}: no {what} received within {self._config.connection_timeout_ms} ms")
            self.turn(min(left_s, 1.0))

    def close(self) -> None:
        """Disconnect, and return once the broker has closed the connection, or after `_CLOSE_S`.

        By then the broker has read all data. If the socket were closed earlier, unread data could be lost, and
        acknowledged messages would be redelivered.
        """
        client = self.client
        socket = client.socket()
        held = None if socket is None else Socket(fileno=os.dup(socket.fileno()))
        client.disconnect()  # closes its socket
        client.loop_misc()
        if (left := client.socket()) is not None:
            left.close()
        if held is not None:
            with held:
                _read_to_the_end(held)

    # -- library callbacks ---------------------------------------------------------------------------------------

    def _on_connect(self, _client: Any, _data: Any, flags: Any, reason: Any, properties: Any) -> None:
        self.session_present = bool(flags.session_present)
        self.receive_maximum = getattr(properties, "ReceiveMaximum", self.receive_maximum)
        self.packet_max = getattr(properties, "MaximumPacketSize", self.packet_max)
        self._answer = str(reason) if reason.is_failure else ""

    def _on_disconnect(self, _client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if self._answer is None or not self._answer:
            self._lost = self._lost or f"connection lost: {reason}"

    def _on_subscribe(self, _client: Any, _data: Any, _mid: int, reasons: list[Any], _properties: Any) -> None:
        self._granted = reasons

    def _on_publish(self, _client: Any, _data: Any, mid: int, reason: Any, _properties: Any) -> None:
        self.confirmed.append((mid, str(reason) if reason.is_failure else ""))
