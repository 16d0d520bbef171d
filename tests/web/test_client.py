"""Both REST clients: redirects with every method and body, reasons of error answers, and what is no answer."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from magnetar.web import async_client, client
from magnetar.web.client import Answer, AnswerTimeout, Form, NoAnswer, Unreachable

Ask = Callable[..., Answer]


class Brokers(ThreadingHTTPServer):
    """One server that stands for two brokers: the one at /other has what is asked for."""

    answer: tuple[int, str, bytes] = (200, "application/json", b"{}")
    is_silent = False
    missing_bytes = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[str, str, bytes]] = []
        self.may_end = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Brokers

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path, body))
        if self.server.is_silent:
            self.server.may_end.wait(10)
            return
        status, kind, content = self.server.answer
        if not self.path.startswith("/other"):
            status, content = 307, b""
        self.send_response(status)
        self.send_header("Location", "/loop" if self.path.startswith("/loop") else f"/other{self.path}")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content) + self.server.missing_bytes))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    with Brokers() as it:
        thread = threading.Thread(target=it.serve_forever, args=(0.01,))
        thread.start()
        yield it
        it.may_end.set()
        it.shutdown()
        thread.join()


def blocking(method: str, url: str, body: Any = None) -> Answer:
    return client.request(method, url, body=body, timeout_s=1)


def in_loop(method: str, url: str, body: Any = None) -> Answer:
    async def run() -> Answer:
        async with async_client.connections(1) as http:
            return await async_client.request(http, method, url, body=body)

    return asyncio.run(run())


@pytest.fixture(params=[blocking, in_loop])
def ask(request: pytest.FixtureRequest) -> Ask:
    made: Ask = request.param
    return made


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
@pytest.mark.parametrize("body", [None, {"on": True}, Form({"data": ("f.py", b"\r\n--x", "text/plain")})])
def test_a_request_goes_on_with_its_body(brokers: Brokers, ask: Ask, method: str, body: Any) -> None:
    if method == "GET" and body is not None:
        return
    assert ask(method, f"{brokers.url}/topic?a=1", body).is_success
    (first, second) = brokers.seen
    assert (first[1], second[1]) == ("/topic?a=1", "/other/topic?a=1")
    assert (first[0], first[2]) == (second[0], second[2])
    assert (first[2] == b"") == (body is None)
    assert not isinstance(body, Form) or b'name="data"; filename="f.py"\r\nContent-Type: text/plain\r\n' in first[2]


def test_redirects_in_circles_end(brokers: Brokers, ask: Ask) -> None:
    with pytest.raises(NoAnswer, match=r"/loop: too many redirects: 10"):
        ask("POST", f"{brokers.url}/loop", {})
    assert len(brokers.seen) == 10


def test_an_answer_that_nests_too_deeply_is_named() -> None:
    answer = Answer("GET", "/x", 200, "OK", {}, b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(NoAnswer, match=r"GET /x: the JSON response is nested too deeply"):
        answer.json()


@pytest.mark.parametrize(
    ("kind", "content", "reason"),
    [
        ("application/json", json.dumps({"reason": "no\nsuch topic"}), "no such topic"),
        ("application/json", json.dumps({"detail": "wrong"}), "wrong"),
        ("application/json", json.dumps("in words"), "in words"),
        ("application/json", "not JSON", "not JSON"),
        ("application/json", '["a", {"b": 1}]', '["a", {"b": 1}]'),
        ("application/json", "[" * 3000, "[" * 2000),
        ("text/html", "<html>a page</html>", "PUT /x: Not Found"),
        ("application/json", "", "PUT /x: Not Found"),
        ("text/plain", "a\x1b[31m" + "b" * 3000, "a\\x1b[31m" + "b" * 1991),
    ],
)
def test_the_reason_of_an_error(brokers: Brokers, ask: Ask, kind: str, content: str, reason: str) -> None:
    brokers.answer = (404, kind, content.encode())
    answer = ask("PUT", f"{brokers.url}/x", {})
    assert (answer.status, answer.reason) == (404, reason)
    assert answer.headers["content-type"] == kind


def test_what_is_no_answer(brokers: Brokers, ask: Ask) -> None:
    with pytest.raises(Unreachable, match=r"^GET http://127\.0\.0\.1:1/x: "):
        ask("GET", "http://127.0.0.1:1/x")
    with pytest.raises(NoAnswer):
        ask("GET", "localhost/x")
    brokers.is_silent = True
    with pytest.raises(AnswerTimeout):
        ask("GET", f"{brokers.url}/x")


def test_a_form_is_what_httpx_makes_of_it() -> None:
    parts: dict[str, tuple[str | None, str | bytes, str]] = {
        'a"b': (None, "ä", "text/plain"),
        "c": ("d\\e", b"\x00", "application/octet-stream"),
    }
    content, headers = client.encode_body(Form(parts))
    boundary = headers["Content-Type"].partition("boundary=")[2]
    expected = httpx.Request(
        "POST", "http://h", files=parts, headers={"Content-Type": f"multipart/form-data; boundary={boundary}"}
    )
    assert content == expected.read()


def test_an_answer_that_breaks_off_is_an_error(brokers: Brokers) -> None:
    with client.stream(f"{brokers.url}/other", connect_timeout_s=1) as (answer, pieces):
        assert answer.is_success
        assert b"".join(pieces) == b"{}"
    brokers.missing_bytes = 1
    with client.stream(f"{brokers.url}/other", connect_timeout_s=1) as (_, pieces), pytest.raises(NoAnswer):
        list(pieces)
    with pytest.raises(NoAnswer):
        blocking("GET", f"{brokers.url}/other")
