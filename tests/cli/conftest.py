"""A fake REST server that records requests and returns configured responses."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import default as modern
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from magnetar.cli.main import main


@dataclass(frozen=True)
class Part:
    """One part of a multipart form."""

    content_type: str
    file_name: str | None
    content: bytes


@dataclass(frozen=True)
class Request:
    """A received request."""

    method: str
    path: str
    query: dict[str, str]
    content_type: str
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def part(self, name: str) -> Part:
        """Return a part of a multipart form."""
        whole = BytesParser(policy=modern).parsebytes(
            b"Content-Type: " + self.content_type.encode() + b"\r\n\r\n" + self.body
        )
        for part in whole.iter_parts():
            if part.get_param("name", header="content-disposition") == name:
                content = part.get_payload(decode=True)
                assert isinstance(content, bytes)
                return Part(part.get_content_type(), part.get_filename(), content)
        raise AssertionError(f"no part {name} in {self.body!r}")

    def config(self) -> Any:
        """Return the FunctionConfig of a create or update request."""
        part = self.part("functionConfig")
        assert part.content_type == "application/json"
        return json.loads(part.content)


@dataclass
class FakeRest:
    """Responds with (status, body, headers) by `METHOD path`, and with 204 by default."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    answers: dict[str, tuple[int, bytes, dict[str, str]]] = field(default_factory=dict)
    turns: dict[str, list[Any]] = field(default_factory=dict)

    def answer(self, call: str, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.answers[call] = (status, body, headers or {"Content-Type": "application/json"})

    def answer_in_turn(self, call: str, values: list[Any]) -> None:
        """Respond with the values one after the other, and then always with the last."""
        self.turns[call] = list(values)

    @property
    def last(self) -> Request:
        return self.requests[-1]


@pytest.fixture
def rest() -> Iterator[FakeRest]:
    fake = FakeRest()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            split = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            content_type = self.headers.get("Content-Type", "")
            fake.requests.append(Request(self.command, split.path, dict(parse_qsl(split.query)), content_type, body))
            if turns := fake.turns.get(f"{self.command} {split.path}"):
                fake.answer(f"{self.command} {split.path}", turns.pop(0) if len(turns) > 1 else turns[0])
            status, content, headers = fake.answers.get(f"{self.command} {split.path}", (204, b"", {}))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = handle_any

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the library's
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield fake
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass(frozen=True)
class Result:
    """The result of a command."""

    code: int
    out: str
    err: str


Magnetar = Callable[..., Result]


@pytest.fixture
def magnetar(rest: FakeRest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Magnetar:
    """Run a command line against the fake server, in this process to save time."""
    monkeypatch.setenv("MAGNETAR_ADMIN_URL", rest.url)

    def call(*arguments: str) -> Result:
        code = main(arguments)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call
