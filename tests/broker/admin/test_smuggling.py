"""Requests that hold another one: what broker and worker could take for two different things.

The worker here is a bare socket that writes down every byte. Whatever a client sends, one request of it must arrive at
the worker as one, with the length that its body has, or none at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from magnetar.broker.admin.app import AdminApp
from magnetar.web.http_protocol import HttpLimits
from magnetar.web.serve import serve

from tests.broker.admin.conftest import RunningBroker

PATH = b"/admin/v3/functions/public/default/f"
INNER = b"DELETE /admin/v3/functions/public/default/victim HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
LIMITS = HttpLimits(head_timeout_s=0.2, body_timeout_s=0.2)
WAIT_S = 30.0


@dataclass
class BareWorker:
    """Answers each connection's first bytes with 204, and keeps all that comes."""

    taken: list[bytearray] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = bytearray()
        self.taken.append(mine)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                mine += data
                if is_whole(bytes(mine)):
                    writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
                    break
            while data := await reader.read(1 << 16):  # what should not be there
                mine += data
        writer.close()


def is_whole(sent: bytes) -> bool:
    """Whether one request is there to its end, as the broker frames it."""
    head, blank, body = sent.partition(b"\r\n\r\n")
    if not blank:
        return False
    if b"transfer-encoding: chunked" in head.lower():
        return body.endswith(b"0\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    return len(body) >= (int(length[1]) if length else 0)


def head_of(sent: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """First line and headers of what came."""
    first, *lines = sent.partition(b"\r\n\r\n")[0].split(b"\r\n")
    pairs = (line.partition(b":") for line in lines)
    return first, [(name.lower(), value.strip()) for name, _, value in pairs]


@pytest.fixture
async def worker(broker: RunningBroker) -> AsyncIterator[BareWorker]:
    it = BareWorker()
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    it.port = server.sockets[0].getsockname()[1]
    broker.worker_url = f"http://127.0.0.1:{it.port}"
    yield it
    server.close()


@pytest.fixture
async def port(broker: RunningBroker, worker: BareWorker) -> AsyncIterator[int]:
    """Of a web server of the broker, as users have it."""
    app = AdminApp(broker.service, broker.namespaces, lambda: f"http://127.0.0.1:{worker.port}")
    server, number = await serve(app, "127.0.0.1", 0, limits=LIMITS)
    yield number
    await server.stop()
    await app.close()


async def send(port: int, data: bytes) -> bytes:
    """Send bytes and a request that ends the connection; return all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    async with asyncio.timeout(WAIT_S):
        with contextlib.suppress(ConnectionError):
            writer.write(data + LAST)
            await writer.drain()
            answer = await reader.read()
    writer.close()
    return answer


def request(*headers: bytes, body: bytes = b"", target: bytes = PATH, method: bytes = b"POST") -> bytes:
    lines = [method + b" " + target + b" HTTP/1.1", b"Host: localhost", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


CHUNKED = b"Transfer-Encoding: chunked"
ZERO = b"0\r\n\r\n"
LENGTH = b"Content-Length: %d"
TWO_LENGTHS = request(LENGTH % 0, LENGTH % len(INNER), body=INNER)

HOSTILE = {
    "length and chunks": request(LENGTH % len(ZERO + INNER), CHUNKED, body=ZERO + INNER),
    "chunks and length": request(CHUNKED, LENGTH % len(ZERO + INNER), body=ZERO + INNER),
    "chunks that are shorter than the length": request(LENGTH % 4, CHUNKED, body=ZERO + INNER),
    "two lengths": TWO_LENGTHS,
    "two lengths, the longer one first": request(LENGTH % len(INNER), LENGTH % 0, body=INNER),
    "a list of lengths": request(b"Content-Length: 0, %d" % len(INNER), body=INNER),
    "a length with a sign": request(b"Content-Length: +%d" % len(INNER), body=INNER),
    "a length in another base": request(b"Content-Length: 0x10", body=INNER),
    "a blank before the colon": request(b"Content-Length : %d" % len(INNER), body=INNER),
    "a blank before the colon of chunks": request(b"Transfer-Encoding : chunked", LENGTH % 5, body=ZERO + INNER),
    "chunks of another name": request(b"Transfer-Encoding: xchunked", LENGTH % 5, body=ZERO + INNER),
    "chunks and identity": request(b"Transfer-Encoding: chunked, identity", LENGTH % 5, body=ZERO + INNER),
    "chunks twice": request(CHUNKED, b"Transfer-Encoding: identity", body=ZERO + INNER),
    "chunks behind a tabulator": request(b"Transfer-Encoding:\tchunked", LENGTH % 3, body=ZERO + INNER),
    "a folded header": request(b"X: a\r\n Content-Length: %d" % len(INNER), body=INNER),
    "a folded kind of body": request(b"Transfer-Encoding:\r\n chunked", LENGTH % 5, body=ZERO + INNER),
    "line feeds alone": request(LENGTH % 0, body=INNER).replace(b"\r\n", b"\n"),
    "a carriage return in a value": request(b"X: a\rContent-Length: %d" % len(INNER), LENGTH % 0, body=INNER),
    "a zero byte in a value": request(b"X: a\0b", LENGTH % 0, body=INNER),
    "a size of a chunk that is none": request(CHUNKED, body=b"-1\r\n" + INNER),
    "a size of a chunk that overflows": request(CHUNKED, body=b"10000000000000000\r\n" + INNER),
    "an extension of a chunk with a line": request(CHUNKED, body=b"0;a=b\nc\r\n\r\n" + INNER),
    "a trailer": request(CHUNKED, body=b"0\r\nContent-Length: 99\r\nAuthorization: Bearer x\r\n\r\n" + INNER),
    "headers of the connection": request(
        b"Connection: close, host, content-length, authorization", LENGTH % 3, body=b"abc"
    ),
    "an upgrade": request(
        b"Connection: upgrade, close", b"Upgrade: h2c", b"HTTP2-Settings: AA", LENGTH % 0, body=INNER
    ),
    "a line in the target": request(LENGTH % 0, target=PATH + b"%0d%0a%0d%0aDELETE%20/victim", body=b""),
    "a whole address as the target": request(LENGTH % 0, target=b"http://127.0.0.1:1" + PATH, body=b""),
    "a body of a GET": request(LENGTH % len(INNER), body=INNER, method=b"GET"),
}


def fault(taken: list[bytearray]) -> str:
    """What is wrong with what arrived at the worker; empty if nothing is.

    A request behind the first one on a connection of a client is one of this client, and goes on by itself.
    """
    for one in taken:
        first, headers = head_of(bytes(one))
        body = bytes(one).partition(b"\r\n\r\n")[2]
        names = [name for name, _ in headers]
        length = dict(headers).get(b"content-length")
        if names.count(b"content-length") + names.count(b"transfer-encoding") > 1:
            return f"two lengths: {headers}"
        if length is not None and len(body) != int(length):
            return f"{len(body)} bytes behind a head that says {int(length)}"
        if b"transfer-encoding" in names and not body.endswith(ZERO):
            return "bytes behind the last chunk"
        if not names or (length is None and b"transfer-encoding" not in names and body):
            return "bytes behind a head without a length"
        if b"authorization" in names:
            return "a trailer has become a header"
        if not re.fullmatch(rb"(POST|GET|DELETE) /admin/v3/functions/\S+ HTTP/1\.1", first):
            return f"a line of its own: {first!r}"
    return "" if sum(PATH in one for one in taken) <= 1 else "one request came twice"


async def test_no_request_is_smuggled_to_the_worker(worker: BareWorker, port: int) -> None:
    found = {}
    for name, sent in HOSTILE.items():
        worker.taken = []
        await send(port, sent)
        found[name] = fault(worker.taken)
    assert not {name: text for name, text in found.items() if text}


async def test_what_the_hostile_ones_differ_from_arrives(worker: BareWorker, port: int) -> None:
    for sent in (request(LENGTH % 3, body=b"abc"), request(CHUNKED, body=b"3\r\nabc\r\n" + ZERO)):
        worker.taken = []
        assert (await send(port, sent)).startswith(b"HTTP/1.1 204")
        assert len(worker.taken) == 1
        assert not fault(worker.taken)


async def test_two_lengths_are_refused(worker: BareWorker, port: int) -> None:
    for sent in (TWO_LENGTHS, HOSTILE["length and chunks"], HOSTILE["chunks and length"]):
        assert (await send(port, sent)).startswith(b"HTTP/1.1 400")
    assert not worker.taken
