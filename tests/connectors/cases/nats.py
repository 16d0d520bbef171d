"""Cases of ``nats``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import nats
import pulsar
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError

from tests.connectors.cases.base import SinkCase, SourceCase
from tests.connectors.servers.nats import NatsServer

_T = TypeVar("_T")
_BAD: list[tuple[dict[str, Any], str]] = [
    ({"url": None}, "url is missing"),
    ({"url": "http://127.0.0.1"}, "invalid url 'http://127.0.0.1': expected nats://host:port"),
    ({"url": "nats://127.0.0.1:1"}, "Connect call failed"),
    ({"password": "wrong"}, "Authorization Violation"),
    ({"username": None}, "password requires username"),
    ({"token": "x"}, "password and token are mutually exclusive"),
    ({"subject": "a b"}, "invalid subject: 'a b' must not contain whitespace"),
    ({"subject": "nowhere"}, "stream"),
    ({"subjects": "x"}, "subjects"),
]


def run(server: NatsServer, action: Callable[[Any], Awaitable[_T]]) -> _T:
    """Run an operation on JetStream."""

    async def connected() -> _T:
        client = await nats.connect(server.url, user=server.username, password=server.password)
        try:
            return await action(client.jetstream(timeout=30.0))
        finally:
            await client.close()

    return asyncio.run(connected())


def make_stream(server: NatsServer, name: str) -> None:
    """Create an empty stream with all subjects below a name."""

    async def make(js: Any) -> None:
        with suppress(NotFoundError):
            await js.delete_stream(name)
        await js.add_stream(name=name, subjects=[f"{name}.>"], max_msg_size=1_010_000)

    run(server, make)


class _Nats:
    server_process: NatsServer

    def where(self) -> dict[str, object]:
        server = self.server_process
        return {"url": server.url, "username": server.username, "password": server.password}


class NatsSinkCase(_Nats, SinkCase):
    """Messages of a stream, which drops republished ones."""

    connector = "nats"
    server = NatsServer
    is_exact = True
    is_ordered = True
    bad_configs = [*_BAD, ({"subject": "out.*"}, "invalid subject: 'out.*' must not contain wildcards")]

    def prepare(self) -> None:
        """Override `Case.prepare`."""
        make_stream(self.server_process, "out")

    def configs(self) -> dict[str, object]:
        """Override `Case.configs`."""
        return self.where() | {"subject": "out.all"}

    def bad_record(self) -> bytes:
        """Override `SinkCase.bad_record`."""
        return b"x" * 1_020_000  # more than the stream takes, and less than the server does

    def read_back(self) -> list[tuple[int, str]]:
        """Override `SinkCase.read_back`."""

        async def read(js: Any) -> list[tuple[int, str]]:
            wanted = (await js.stream_info("out")).state.messages
            consumer = await js.pull_subscribe("out.>", stream="out", config=ConsumerConfig(ack_policy=AckPolicy.NONE))
            found: list[tuple[int, str]] = []
            while len(found) < wanted:
                for message in await consumer.fetch(min(500, wanted - len(found)), timeout=30.0):
                    value = json.loads(message.data)
                    number = value["id"]
                    key = None if number % 10 == 0 else f"schlüssel-{number}"
                    assert message.headers.get("Pulsar-Key") == key
                    assert message.headers.get("number") == (str(number) if number % 3 else None)
                    assert ("l%C3%A4nge" in message.headers) == bool(number % 3)
                    found.append((number, value["text"]))
            return found

        return run(self.server_process, read)


class NatsSourceCase(_Nats, SourceCase):
    """Messages of a stream, read by a durable consumer.

    What is lost on the way is sent again when the server has waited long enough, behind others.
    """

    connector = "nats"
    server = NatsServer
    is_ordered = False
    bad_configs = [*_BAD, ({"stream": "none"}, "no stream 'none'"), ({"durable": "a.b"}, "invalid durable 'a.b'")]

    def prepare(self) -> None:
        """Override `Case.prepare`."""
        make_stream(self.server_process, "in")

    def configs(self) -> dict[str, object]:
        """Override `Case.configs`."""
        return self.where() | {"subject": "in.*", "ackWaitSeconds": 2}

    def feed(self, records: list[tuple[int, str]]) -> None:
        """Override `SourceCase.feed`."""

        async def publish(js: Any) -> None:
            sent = []
            for number, text in records:
                headers = {"number": str(number), "gr%C3%B6%C3%9Fe": str(len(text))}
                if number % 10:
                    headers["Pulsar-Key"] = f"schlüssel-{number}"
                sent.append(await js.publish_async(f"in.{number % 5}", text.encode(), headers=headers))
            await asyncio.gather(*sent)

        run(self.server_process, publish)

    def identify(self, message: pulsar.Message) -> tuple[int, str]:
        """Override `SourceCase.identify`."""
        properties, text = message.properties(), message.data().decode()
        number = int(properties["number"])
        assert properties["nats.subject"] == f"in.{number % 5}"
        assert properties["größe"] == str(len(text))
        assert message.partition_key() == ("" if number % 10 == 0 else f"schlüssel-{number}")
        return number, text
