"""Cases of ``mqtt``.

Mosquitto is ended by SIGTERM, not killed: it writes what it has confirmed to disk when it ends and now and then, and
says that it has confirmed it before. What a kill would lose is its own loss, which no connector could mend.
"""

from __future__ import annotations

import json
import threading
from typing import Any

import paho.mqtt.client as paho
import pulsar
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.connectors.cases.base import SinkCase, SourceCase
from tests.connectors.servers.mosquitto import Mosquitto

_TIMEOUT_S = 30.0
_BAD: list[tuple[dict[str, Any], str]] = [
    ({"serverHost": None}, "serverHost is missing"),
    ({"serverHost": "mqtt://127.0.0.1"}, "invalid serverHost 'mqtt://127.0.0.1': expected a host name"),
    ({"serverPort": 1}, "Connection refused"),
    ({"password": "wrong"}, "refused the connection: Not authorized"),
    ({"username": None}, "password requires username"),
    ({"qos": 3}, "qos must be at most 2"),
    ({"protocolVersion": "3.1.1", "password": "wrong"}, "refused the connection: Not authorized"),
    ({"keepAlive": 1}, "keepAlive"),
]


class Client:
    """A client of the library with its own thread, which reconnects automatically."""

    def __init__(self, server: Mosquitto, name: str, *, clean: bool = False, on_message: Any = None) -> None:
        self.client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
        self.client.username_pw_set(server.username, server.password)
        self.client.reconnect_delay_set(1, 1)
        self.client.on_message = on_message
        self._connected, self._subscribed = threading.Event(), threading.Event()
        self.client.on_connect = lambda *_: self._connected.set()
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 0 if clean else 3600
        self.client.connect("127.0.0.1", server.port, clean_start=clean, properties=properties)
        self.client.loop_start()
        assert self._connected.wait(_TIMEOUT_S)

    def subscribe(self, topic: str) -> None:
        self._subscribed.clear()
        self.client.subscribe(topic, 1)
        assert self._subscribed.wait(_TIMEOUT_S)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()
        self.client._reset_sockets()  # the library leaves a pair of them to the garbage collector


class MqttSinkCase(SinkCase):
    """Messages of one topic, received by another client."""

    connector = "mqtt"
    server = Mosquitto
    is_ordered = True
    bad_configs = [
        *_BAD,
        ({"topic": "a/#"}, "invalid topic: 'a/#' must not contain wildcards"),
        ({"topic": None}, "topic is missing"),
    ]

    def prepare(self) -> None:
        """Override `Case.prepare`."""
        self._received: list[Any] = []
        Client(self.server_process, "reader", clean=True).close()  # ends the session of the test before
        self._reader = Client(self.server_process, "reader", on_message=lambda *a: self._received.append(a[2]))
        self._reader.subscribe("out/#")

    def take_away(self) -> None:
        """Override `Case.take_away`."""
        self.server_process.stop()

    def configs(self) -> dict[str, object]:
        """Override `Case.configs`."""
        return _where(self.server_process) | {"topic": "out/ü"}

    def bad_record(self) -> bytes | None:
        """Override `SinkCase.bad_record`."""
        return b"x" * Mosquitto.packet_max

    def read_back(self) -> list[tuple[int, str]]:
        """Override `SinkCase.read_back`."""
        found = []
        for message in list(self._received):
            assert message.topic == "out/ü"
            value = json.loads(message.payload)
            number = value["id"]
            properties = dict(getattr(message.properties, "UserProperty", ()))
            assert properties.get("pulsar-key") == (None if number % 10 == 0 else f"schlüssel-{number}")
            assert properties.get("number") == (str(number) if number % 3 else None)
            found.append((number, value["text"]))
        return found

    def close(self) -> None:
        """Override `Case.close`."""
        if hasattr(self, "_reader"):
            self._reader.close()


class MqttSink311Case(MqttSinkCase):
    """QoS 2, which takes four steps, over the older protocol."""

    bad_configs = []

    def configs(self) -> dict[str, object]:
        """Override `Case.configs`."""
        return super().configs() | {"protocolVersion": "3.1.1", "qos": 2}

    def bad_record(self) -> bytes | None:
        """Override `SinkCase.bad_record`: the broker does not say what it takes."""
        return None

    def read_back(self) -> list[tuple[int, str]]:
        """Override `SinkCase.read_back`."""
        found = [json.loads(message.payload) for message in list(self._received)]
        return [(value["id"], value["text"]) for value in found]


class MqttSourceCase(SourceCase):
    """Messages of many topics, selected by a wildcard."""

    connector = "mqtt"
    server = Mosquitto
    bad_configs = [
        *_BAD,
        ({"topics": None}, "topics is missing"),
        ({"topics": "a/#/b"}, "invalid topic 'a/#/b': # must be the last level"),
        ({"qos": 2}, "qos 2 is not supported"),
    ]
    more: dict[str, object] = {}

    def prepare(self) -> None:
        """Override `Case.prepare`: the session is there before anything is published."""
        Client(self.server_process, "source", clean=True).close()
        session = Client(self.server_process, "source")
        session.subscribe("in/#")
        session.close()

    def take_away(self) -> None:
        """Override `Case.take_away`."""
        self.server_process.stop()

    def configs(self) -> dict[str, object]:
        """Override `Case.configs`."""
        return _where(self.server_process) | {"topics": "in/#", "clientId": "source", **self.more}

    def feed(self, records: list[tuple[int, str]]) -> None:
        """Override `SourceCase.feed`."""
        feeder = Client(self.server_process, "feeder", clean=True)
        sent = []
        for number, text in records:
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = [("number", str(number)), ("größe", str(len(text)))]
            if number % 10:
                properties.UserProperty = ("pulsar-key", f"schlüssel-{number}")
            payload = json.dumps([number, text]).encode()
            sent.append(feeder.client.publish(f"in/{number % 5}", payload, 1, properties=properties))
        for one in sent:
            one.wait_for_publish(_TIMEOUT_S)
            assert one.is_published()
        feeder.close()

    def identify(self, message: pulsar.Message) -> tuple[int, str]:
        """Override `SourceCase.identify`."""
        number, text = json.loads(message.data())
        properties = message.properties()
        assert properties["mqtt.topic"] == f"in/{number % 5}"
        assert (properties["number"], properties["größe"]) == (str(number), str(len(text)))
        assert message.partition_key() == ("" if number % 10 == 0 else f"schlüssel-{number}")
        return number, text


def _where(server: Mosquitto) -> dict[str, object]:
    return {
        "serverHost": "127.0.0.1",
        "serverPort": server.port,
        "username": server.username,
        "password": server.password,
    }
