"""Requests of planners to a cluster whose brokers send them on to each other."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from magnetar.errors import ConnectionLost
from magnetar.spark.source.connection import ask


class Brokers(HTTPServer):
    """One server that stands for two brokers: the one at /other has what is asked for.

    Attributes:
        seen: method, path and body of each request.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[str, str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Brokers

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path, body))
        is_owner = self.path.startswith("/other")
        self.send_response(200 if is_owner else 307)
        location = "/loop" if self.path.startswith("/loop") else f"/other{self.path}"
        self.send_header("Location", f"{self.server.url}{location}")
        answer = json.dumps({"type": self.headers["Content-Type"]}).encode() if is_owner else b""
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    with Brokers() as it:
        thread = threading.Thread(target=it.serve_forever)
        thread.start()
        yield it
        it.shutdown()
        thread.join()


@pytest.mark.parametrize(("method", "body"), [("GET", None), ("POST", {"on": True}), ("DELETE", None)])
def test_a_request_goes_on_to_the_broker_that_owns_the_topic(brokers: Brokers, method: str, body: object) -> None:
    assert ask(brokers.url, method, "/topic", body) == {"type": None if body is None else "application/json"}
    sent = b"" if body is None else json.dumps(body).encode()
    assert brokers.seen == [(method, "/topic", sent), (method, "/other/topic", sent)]


def test_brokers_that_send_it_round_in_circles_are_refused(brokers: Brokers) -> None:
    with pytest.raises(ConnectionLost, match="too many redirects: 10"):
        ask(brokers.url, "POST", "/loop", {})
    assert len(brokers.seen) < 20


def test_what_is_no_address_is_said_with_the_option() -> None:
    with pytest.raises(ConnectionLost, match=r"GET localhost/x failed: unknown url type: .*: check option"):
        ask("localhost", "GET", "/x")
