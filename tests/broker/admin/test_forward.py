"""Functions requests go on to a worker and come back as they were, however large or slow."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest
from magnetar.broker.admin.app import AdminApp
from magnetar.broker.admin.forward import NO_PACKAGES, NOT_ENABLED, NOT_READY, forwards
from magnetar.web.serve import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.broker.admin.conftest import RunningBroker

FUNCTION = "/admin/v3/functions/public/default/f"


@dataclass
class FakeWorker:
    """A stand-in for the worker's REST, which this floor does not know; it records what arrived."""

    url: str = ""
    seen: list[tuple[str, bytes, dict[str, str], bytes]] = field(default_factory=list)
    logs_started: asyncio.Event = field(default_factory=asyncio.Event)
    logs_ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def echo(self, request: Request) -> Response:
        body = await request.body()
        self.seen.append((request.method, request.scope["raw_path"], dict(request.headers), body))
        return JSONResponse({"reason": "seen"}, 418, headers={"X-Worker": "w-1"})

    async def jetty_page(self, request: Request) -> Response:
        return HTMLResponse("<title>Error 404 Not Found</title>", 404)

    async def absent(self, request: Request) -> Response:
        return JSONResponse({"reason": "no such package"}, 404)

    async def redirect(self, request: Request) -> Response:
        await request.body()
        return RedirectResponse("http://leader.example:6750/admin/v3/functions/x", 307)

    async def logs(self, request: Request) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            try:
                yield b"first\n"
                self.logs_started.set()
                await asyncio.Event().wait()  # a quiet function
            finally:
                self.logs_ended.set()

        return StreamingResponse(lines(), media_type="text/plain")

    async def download(self, request: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            for _ in range(64):
                yield bytes(256 * 1024)

        return StreamingResponse(parts())


@pytest.fixture
async def worker(broker: RunningBroker) -> AsyncIterator[FakeWorker]:
    fake = FakeWorker()
    app = Starlette(
        routes=[
            Route(f"{FUNCTION}/logs", fake.logs),
            Route(f"{FUNCTION}/download", fake.download),
            Route(f"{FUNCTION}/elsewhere", fake.redirect, methods=["POST"]),
            Route("/admin/v3/packages/function/jetty/{rest:path}", fake.jetty_page),
            Route("/admin/v3/packages/function/ours/{rest:path}", fake.absent),
            Route("/{path:path}", fake.echo, methods=["GET", "PUT", "POST", "DELETE"]),
        ]
    )
    server, port = await serve(app, "127.0.0.1", 0)
    broker.worker_url = fake.url = f"http://127.0.0.1:{port}"
    yield fake
    await server.stop()


async def test_packages_of_apache_pulsars_worker_are_refused_with_the_reason(
    broker: RunningBroker, worker: FakeWorker
) -> None:
    answer = await broker.http.get("/admin/v3/packages/function/jetty/n/p")
    assert (answer.status_code, answer.json()) == (503, {"reason": NO_PACKAGES})
    answer = await broker.http.get("/admin/v3/packages/function/ours/n/p")
    assert (answer.status_code, answer.json()) == (404, {"reason": "no such package"})


async def test_method_path_query_headers_and_body_arrive_unmodified(broker: RunningBroker, worker: FakeWorker) -> None:
    path = b"/admin/v3/functions/public/default/a%2Fb%20c+d?x=1&y=%26"
    url = httpx.URL(broker.web_url).copy_with(raw_path=path)
    request = httpx.Request("PUT", url, headers={"X-Mine": "1", "Content-Type": "text/x"}, content=b"body")
    answer = await broker.http.send(request)
    assert (answer.status_code, answer.json(), answer.headers["x-worker"]) == (418, {"reason": "seen"}, "w-1")
    method, raw_path, headers, body = worker.seen[0]
    assert (method, body) == ("PUT", b"body")
    assert raw_path == path.split(b"?")[0]
    assert (headers["x-mine"], headers["content-type"], headers["content-length"]) == ("1", "text/x", "4")


async def test_multipart_bodies_are_the_same_bytes(broker: RunningBroker, worker: FakeWorker) -> None:
    package = os.urandom(3 * 1024 * 1024)
    files: dict[str, tuple[str | None, bytes | str, str]] = {
        "data": ("f.py", package, "application/octet-stream"),
        "functionConfig": (None, "{}", "application/json"),
    }
    request = broker.http.build_request("POST", FUNCTION, files=files)
    sent = await request.aread()
    await broker.http.send(request)
    _, _, headers, body = worker.seen[0]
    assert hashlib.sha256(body).digest() == hashlib.sha256(sent).digest()
    assert headers["content-type"] == request.headers["content-type"]


async def test_a_body_of_unknown_length_is_streamed(broker: RunningBroker, worker: FakeWorker) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for number in range(10):
            yield b"%d," % number

    await broker.http.post(FUNCTION, content=parts())
    assert worker.seen[0][3] == b"0,1,2,3,4,5,6,7,8,9,"


async def test_a_large_answer_comes_through(broker: RunningBroker, worker: FakeWorker) -> None:
    answer = await broker.http.get(f"{FUNCTION}/download")
    assert len(answer.content) == 16 * 1024 * 1024


async def test_a_redirect_is_passed_back(broker: RunningBroker, worker: FakeWorker) -> None:
    answer = await broker.http.post(f"{FUNCTION}/elsewhere", content=b"x")
    assert answer.status_code == 307
    assert answer.headers["location"] == "http://leader.example:6750/admin/v3/functions/x"


async def test_a_followed_log_streams_and_ends_when_the_client_leaves(
    broker: RunningBroker, worker: FakeWorker
) -> None:
    async with broker.http.stream("GET", f"{FUNCTION}/logs") as answer:
        assert await anext(answer.aiter_raw()) == b"first\n"
        await worker.logs_started.wait()
    async with asyncio.timeout(30):
        await worker.logs_ended.wait()


async def test_without_a_live_worker_the_answer_is_503(broker: RunningBroker) -> None:
    answer = await broker.http.get(FUNCTION)
    assert (answer.status_code, answer.json()) == (503, {"reason": NOT_READY})


async def test_a_worker_that_died_is_named_in_a_503(broker: RunningBroker) -> None:
    broker.worker_url = "http://127.0.0.1:1"
    answer = await broker.http.get(FUNCTION)
    assert answer.status_code == 503
    assert answer.json()["reason"].startswith(
        "the functions worker at http://127.0.0.1:1 did not respond (ConnectError"
    )
    assert "\n" not in answer.json()["reason"]


async def test_a_broker_without_functions_answers_409(broker: RunningBroker) -> None:
    app = AdminApp(broker.service, broker.namespaces, lambda: None, is_worker_enabled=False)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        answer = await http.get("/admin/v2/worker/cluster")
    assert (answer.status_code, answer.json()) == (409, {"reason": NOT_ENABLED})


@pytest.mark.parametrize(
    "path",
    [
        "/admin/v3/functions",
        "/admin/v3/functions/t/n/f/status",
        "/admin/v3/function/t",
        "/admin/v3/sources/t/n",
        "/admin/v3/source/t",
        "/admin/v3/sinks/builtinsinks",
        "/admin/v3/sink/t",
        "/admin/v2/worker/cluster",
        "/admin/v2/worker-stats/metrics",
    ],
)
def test_functions_paths_belong_to_the_worker(path: str) -> None:
    assert forwards(path)


@pytest.mark.parametrize("path", ["/admin/v3/functionsx", "/admin/v2/workers", "/admin/v2/tenants", "/admin/v3", "/"])
def test_other_paths_do_not(path: str) -> None:
    assert not forwards(path)


@pytest.fixture
def few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give forwarders that are made from now on three connections, two of them for one caller."""
    monkeypatch.setattr("magnetar.broker.admin.forward.MAX_CONNECTIONS", 3)
    monkeypatch.setattr("magnetar.broker.admin.forward.CONNECTIONS_PER_CALLER", 2)
    monkeypatch.setattr("magnetar.broker.admin.forward.POOL_TIMEOUT_S", 0.2)


@pytest.mark.usefixtures("few_connections")
async def test_followed_logs_of_one_caller_leave_connections_for_others(
    broker: RunningBroker, worker: FakeWorker
) -> None:
    elsewhere = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
    async with (
        broker.http.stream("GET", f"{FUNCTION}/logs") as first,
        broker.http.stream("GET", f"{FUNCTION}/logs") as second,
        httpx.AsyncClient(base_url=broker.web_url, transport=elsewhere) as other,
    ):
        followed = [first.aiter_raw(), second.aiter_raw()]
        assert [await anext(log) for log in followed] == [b"first\n"] * 2
        refused = await broker.http.get(FUNCTION)
        assert (refused.status_code, refused.json()["reason"]) == (
            429,
            "address 127.0.0.1 has 2 requests to the functions worker in progress: retry after some have finished",
        )
        assert (await other.get(FUNCTION)).status_code == 418
        async with other.stream("GET", f"{FUNCTION}/logs") as third:
            followed.append(third.aiter_raw())
            assert await anext(followed[-1]) == b"first\n"
            refused = await other.get(FUNCTION)
            assert refused.status_code == 503
            assert refused.json()["reason"].startswith("all 3 connections to the functions worker are in use")
    assert (await broker.http.get(FUNCTION)).status_code == 418


@pytest.mark.usefixtures("few_connections")
async def test_half_a_body_takes_no_connection_to_the_worker(broker: RunningBroker, worker: FakeWorker) -> None:
    port = int(broker.web_url.rsplit(":", 1)[1])
    head = f"POST {FUNCTION} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nConnection: close\r\n\r\n"
    halves = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
    for _, writer in halves:
        writer.write(head.encode() + b"x" * 50)
        await writer.drain()
    for _ in range(3):
        assert (await broker.http.post(FUNCTION, content=b"whole")).status_code == 418
    for reader, writer in halves:
        writer.write(b"x" * 50)
        assert (await reader.readline()).startswith(b"HTTP/1.1 418 ")
        writer.close()
    assert [seen[3] for seen in worker.seen] == [b"whole"] * 3 + [b"x" * 100] * 5


async def test_an_answer_that_the_worker_breaks_off_ends_early_and_is_one_line_of_the_log(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        writer.close()

    async with await asyncio.start_server(break_off, "127.0.0.1", 0) as server:
        broker.worker_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(httpx.RemoteProtocolError):
            await broker.http.get(FUNCTION)
    assert "aborted its response" in caplog.text
    assert "Traceback" not in caplog.text
