"""The source ``websocket``, with a server that sends all its messages to each subscriber."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pulsar
from websockets.sync.client import ClientConnection, connect

from tests.connectors.cases.base import SourceCase
from tests.connectors.servers.websocket import WebsocketServer

TOKEN = {"Authorization": "Bearer secret"}


@contextmanager
def putting(url: str) -> Iterator[ClientConnection]:
    with connect(url, additional_headers=TOKEN, proxy=None) as connection:
        connection.send("put")
        yield connection


class WebsocketSourceCase(SourceCase):
    """Alternating text and binary messages."""

    connector = "websocket"
    server = WebsocketServer
    server_process: WebsocketServer
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = [
        ({"url": None}, "url is missing"),
        ({"url": "http://127.0.0.1/feed"}, "invalid url 'http://127.0.0.1/feed': expected ws://host:port/path"),
        ({"url": "ws://127.0.0.1:1/feed"}, "retrying"),
        ({"token": "wrong"}, "HTTP 401"),
        ({"headers": {"a b": "c"}}, "headers: invalid header 'a b'"),
        ({"headers": TOKEN}, "header Authorization and token are mutually exclusive"),
        ({"messageTypes": "images"}, "messageTypes must be one of all, text, binary"),
        ({"urls": "x"}, "unknown field urls"),
    ]
    name = ""

    def url(self) -> str:
        self.name = self.name or f"feed-{uuid.uuid4().hex[:8]}"
        return self.server_process.url(self.name)

    def configs(self) -> dict[str, object]:
        return {"url": self.url(), "token": "secret", "subscribeMessage": "subscribe"}

    def feed(self, records: list[tuple[int, str]]) -> None:
        with putting(self.url()) as connection:
            for number, text in records:
                message = json.dumps({"id": number, "text": text}, ensure_ascii=False)
                connection.send(message if number % 2 else message.encode())
            connection.send("sync")
            assert connection.recv(30) == f"kept {len(records)}"

    def feed_bad(self) -> None:
        """Send nothing: any message is a valid record, even an empty one."""

    def identify(self, message: pulsar.Message) -> tuple[int, str]:
        value = json.loads(message.data())
        return value["id"], value["text"]
