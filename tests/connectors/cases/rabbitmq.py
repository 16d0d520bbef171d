"""Cases of ``rabbitmq``."""

from __future__ import annotations

import json
from typing import Any

import pika
import pulsar

from tests.connectors.cases.base import SinkCase, SourceCase
from tests.connectors.servers.rabbitmq import RabbitServer

_SILENCE_S = 0.3
_BAD: list[tuple[dict[str, Any], str]] = [
    ({"host": None}, "host is missing"),
    ({"host": "amqp://127.0.0.1"}, "invalid host 'amqp://127.0.0.1': expected a host name"),
    ({"port": 1}, "Connection refused"),
    ({"password": "wrong"}, "ACCESS_REFUSED"),
    ({"virtualHost": "none"}, "vhost none not found"),
    ({"requestedFrameMax": 1}, "requestedFrameMax must be 0 or at least 4096"),
    ({"hots": "x"}, "hots"),
]


class _Rabbit:
    server_process: RabbitServer

    def opened(self) -> Any:
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.server_process.port))

    def where(self) -> dict[str, object]:
        return {"host": "127.0.0.1", "port": self.server_process.port}


class RabbitSinkCase(_Rabbit, SinkCase):
    """Messages of a queue bound to an exchange."""

    connector = "rabbitmq"
    server = RabbitServer
    is_ordered = True
    seconds = 300.0
    bad_configs = [
        *_BAD,
        ({"exchangeName": None}, "exchangeName is missing"),
        ({"exchangeName": "none", "queueName": None, "passive": True}, "no exchange 'none'"),
        ({"routingKey": "{key}"}, "routingKey must not contain placeholders if queueName is set"),
    ]

    def prepare(self) -> None:
        """Override `Case.prepare`."""
        self._found: list[tuple[int, str]] = []
        with self.opened() as connection:
            channel = connection.channel()
            channel.queue_delete("out")
            channel.exchange_delete("ex")

    def configs(self) -> dict[str, object]:
        """Override `Case.configs`."""
        return self.where() | {"exchangeName": "ex", "queueName": "out", "routingKey": "all"}

    def bad_record(self) -> bytes:
        """Override `SinkCase.bad_record`."""
        return b"x" * (RabbitServer.message_max + 1)

    def read_back(self) -> list[tuple[int, str]]:
        """Override `SinkCase.read_back`."""
        with self.opened() as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=1000)
            for method, properties, body in channel.consume("out", inactivity_timeout=_SILENCE_S):
                if method is None:
                    break
                value = json.loads(body)
                number = value["id"]
                headers = properties.headers or {}
                assert headers.get("pulsar-key") == (None if number % 10 == 0 else f"schlüssel-{number}")
                assert headers.get("number") == (str(number) if number % 3 else None)
                assert (method.routing_key, properties.delivery_mode) == ("all", 2)
                channel.basic_ack(method.delivery_tag)
                self._found.append((number, value["text"]))
            channel.cancel()
        return self._found


class RabbitSourceCase(_Rabbit, SourceCase):
    """Messages of a durable queue."""

    connector = "rabbitmq"
    server = RabbitServer
    seconds = 300.0
    bad_configs = [
        *_BAD,
        ({"queueName": None}, "queueName is missing"),
        ({"queueName": "none", "passive": True}, "no queue 'none'"),
    ]

    def prepare(self) -> None:
        """Override `Case.prepare`."""
        with self.opened() as connection:
            channel = connection.channel()
            channel.queue_delete("in")
            channel.queue_declare("in", durable=True)

    def configs(self) -> dict[str, object]:
        """Override `Case.configs`."""
        return self.where() | {"queueName": "in"}

    def feed(self, records: list[tuple[int, str]]) -> None:
        """Override `SourceCase.feed`."""
        with self.opened() as connection:
            channel = connection.channel()
            channel.tx_select()
            for number, text in records:
                headers: dict[str, Any] = {"number": number, "größe": [len(text)], "b": b"\xff"}
                if number % 10:
                    headers["pulsar-key"] = f"schlüssel-{number}"
                properties = pika.BasicProperties(delivery_mode=2, headers=headers)
                channel.basic_publish("", "in", text.encode(), properties)
            channel.tx_commit()

    def identify(self, message: pulsar.Message) -> tuple[int, str]:
        """Override `SourceCase.identify`."""
        properties, text = message.properties(), message.data().decode()
        number = int(properties["number"])
        assert (properties["größe"], properties["b"]) == (f"[{len(text)}]", "\\xff")
        assert (properties["rabbitmq.exchange"], properties["rabbitmq.routingKey"]) == ("", "in")
        assert message.partition_key() == ("" if number % 10 == 0 else f"schlüssel-{number}")
        return number, text
