"""Clients that send half of a request, or nothing, and those beside them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from magnetar.web.http_protocol import HttpLimits
from magnetar.web.serve import serve
from magnetar.wire.commands import connect_command, wrap
from magnetar.wire.frames import encode_frame
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

WAIT_S = 30.0


class Site:
    """A server that answers with the size of the body, and raw connections to it."""

    def __init__(self) -> None:
        self.port = 0
        self.go_on = asyncio.Event()
        self.writers: list[asyncio.StreamWriter] = []

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.url.path == "/slow":
            await self.go_on.wait()
        with contextlib.suppress(Exception):
            size = len(await request.body())
            await PlainTextResponse(f"{size} bytes")(scope, receive, send)

    async def connect(self, data: bytes) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        writer.write(data)
        await writer.drain()
        return reader

    async def ask(self) -> str:
        async with asyncio.timeout(WAIT_S):
            reader = await self.connect(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return (await reader.read()).decode()


@contextlib.asynccontextmanager
async def site(limits: HttpLimits) -> AsyncIterator[Site]:
    it = Site()
    server, it.port = await serve(it.app, "127.0.0.1", 0, limits=limits)
    try:
        yield it
    finally:
        it.go_on.set()
        for writer in it.writers:
            writer.close()
        await server.stop()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b""),
        (b"GET / HT", b"HTTP/1.1 408 "),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", b"HTTP/1.1 408 "),
        (b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf", b"HTTP/1.1 408 "),
        (b"PUT / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhal", b"HTTP/1.1 408 "),
    ],
)
async def test_half_a_request_is_given_up(sent: bytes, status: bytes) -> None:
    async with site(HttpLimits(head_timeout_s=0.05, body_timeout_s=0.05)) as it, asyncio.timeout(WAIT_S):
        reader = await it.connect(sent)
        answer = await reader.read()
        assert answer.startswith(status)
        assert bool(answer) == bool(status)
        if answer:
            assert b"content-type: application/json" in answer
            assert answer.endswith(b' s"}')
        assert "0 bytes" in await it.ask()


async def test_a_head_that_comes_byte_by_byte_is_given_up_however_long_it_goes_on() -> None:
    async with site(HttpLimits(head_timeout_s=0.1)) as it, asyncio.timeout(WAIT_S):
        reader = await it.connect(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        answer = asyncio.create_task(reader.read())
        while not answer.done():
            it.writers[-1].write(b"a")
            await asyncio.wait((answer,), timeout=0.01)
        with contextlib.suppress(ConnectionError):
            assert (await answer).startswith(b"HTTP/1.1 408 ")
        assert "0 bytes" in await it.ask()


async def test_blank_lines_are_no_request() -> None:
    async with site(HttpLimits(head_timeout_s=0.05)) as it, asyncio.timeout(WAIT_S):
        for sent in (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
            it.writers.append(writer)
            writer.write(sent)
            if sent:
                assert (await reader.readuntil(b"0 bytes")).startswith(b"HTTP/1.1 200 ")
            writer.write(b"\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 408 ")


async def test_the_rest_of_a_body_that_was_refused_gets_no_second_answer() -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("no", 413)(scope, receive, send)

    async with asyncio.timeout(WAIT_S):
        server, port = await serve(refuse, "127.0.0.1", 0, limits=HttpLimits(body_timeout_s=0.05))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert answer.endswith(b"\r\n\r\nno")
        writer.close()
        await server.stop()


async def test_a_slow_answer_and_a_body_that_is_not_read_yet_are_not_late() -> None:
    body = b"x" * 5_000_000
    async with site(HttpLimits(head_timeout_s=0.02, body_timeout_s=0.02)) as it, asyncio.timeout(WAIT_S):
        head = b"PUT /slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
        reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
        it.writers.append(writer)
        writer.write(head + body)
        asyncio.get_running_loop().call_later(0.2, it.go_on.set)
        assert (await reader.read()).endswith(b"5000000 bytes")


async def test_a_client_that_waits_to_be_asked_for_its_body_is_not_late() -> None:
    async with site(HttpLimits(head_timeout_s=0.02, body_timeout_s=0.02)) as it, asyncio.timeout(WAIT_S):
        head = (
            b"PUT /slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nExpect: 100-continue\r\nConnection: close"
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
        it.writers.append(writer)
        writer.write(head + b"\r\n\r\n")
        asyncio.get_running_loop().call_later(0.2, it.go_on.set)
        assert (await reader.readline()).startswith(b"HTTP/1.1 100 ")
        writer.write(b"body")
        assert (await reader.read()).endswith(b"4 bytes")


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: loc",
        b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
async def test_clients_that_send_nothing_more_keep_nobody_out(half: bytes) -> None:
    async with site(HttpLimits(max_connections=20)) as it:
        for _ in range(60):
            await it.connect(half)
        for _ in range(5):
            assert "0 bytes" in await it.ask()


async def test_a_request_under_way_keeps_its_place() -> None:
    async with site(HttpLimits(max_connections=4)) as it, asyncio.timeout(WAIT_S):
        readers = [await it.connect(b"GET /slow HTTP/1.1\r\nHost: a.localhost\r\n\r\n") for _ in range(4)]
        answer = await it.ask()
        assert answer.startswith("HTTP/1.1 503 ")
        assert answer.endswith('{"reason": "all connections of this server are in use; retry shortly"}')
        it.go_on.set()
        for reader in readers:
            assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
        assert "0 bytes" in await it.ask()


async def test_a_client_of_the_binary_protocol_is_told_that_this_is_an_http_port() -> None:
    frame = encode_frame(wrap(connect_command("test", None)))
    async with site(HttpLimits()) as it:
        reader = await it.connect(frame)
        async with asyncio.timeout(WAIT_S):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"this is an HTTP port, but the client speaks Pulsar's binary protocol: use pulsar://host:6650" in answer
        assert (await it.ask()).startswith("HTTP/1.1 200 ")
