"""A listener with TLS on both event loops: who gives way, who is served, and what is left when it ends."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from magnetar.security import tls_listener
from magnetar.security.server_tls import TlsServerContext
from magnetar.security.server_tls_settings import ServerTls
from magnetar.security.tls_listener import TlsListener, bound, most_handshakes

from tests.support.certificates import Authority
from tests.support.eventually import eventually

MAX = 3
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
Run = Callable[[Callable[["Site"], Coroutine[Any, Any, None]]], None]


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport.get_extra_info("peername")[1], int)
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one without being of the class

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Site:
    """A listener and how its clients reach it."""

    def __init__(self, listener: TlsListener, trusting: ssl.SSLContext) -> None:
        self.listener = listener
        self.port: int = listener.sockets[0].getsockname()[1]
        self.trusting = trusting

    async def slow(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client that never begins its handshake."""
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def echo(self, text: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trusting)
        # In one piece with the end of the handshake, so it is here before the server has told its protocol.
        writer.write(text)
        answer = await reader.readexactly(len(text))
        writer.close()
        return answer


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    authority = Authority(tmp_path)
    certificate = authority.issue("server")
    settings = ServerTls(certificate_file=str(certificate.file), key_file=str(certificate.key_file))
    trusting = ssl.create_default_context(cafile=str(authority.file))
    monkeypatch.setattr(tls_listener, "MAX_HANDSHAKES", MAX)

    def in_loop(test: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            listener = TlsListener(await bound("127.0.0.1", 0), TlsServerContext(settings).context, Echo)
            try:
                async with asyncio.timeout(tls_listener.HANDSHAKE_TIMEOUT_S - 1):
                    await test(Site(listener, trusting))
            finally:
                listener.close()
                await listener.wait_closed()

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(whole())

    return in_loop


def test_the_oldest_that_say_nothing_give_way_and_the_newest_are_served(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(site: Site) -> None:
        slow = [await site.slow() for _ in range(3 * MAX)]
        for reader, _ in slow[: 2 * MAX]:
            assert await reader.read() == b""
        assert await site.echo(b"x" * 100_000) == b"x" * 100_000
        assert await slow[2 * MAX][0].read() == b""
        for _, writer in slow:
            writer.close()
        assert [await site.echo(b"y") for _ in range(3 * MAX)] == [b"y"] * (3 * MAX)

    with caplog.at_level(logging.INFO):
        run(test)
    told = [one for one in caplog.messages if "TLS" in one]
    assert set(told) == {f"dropped the oldest of {MAX} unfinished TLS handshakes for a new client"}
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_a_client_that_sends_no_tls_or_goes_takes_no_place(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test(site: Site) -> None:
        for _ in range(2 * MAX):
            reader, writer = await site.slow()
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await writer.drain()
            while await reader.read(100):  # an alert may come first
                pass
            writer.close()
            (await site.slow())[1].close()

        async def is_empty() -> bool:
            return not site.listener._unfinished

        await eventually(is_empty, "no handshake is left")
        assert await site.echo(b"z") == b"z"

    run(test)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_closing_drops_unfinished_handshakes_and_frees_the_port_and_all_files(run: Run) -> None:
    async def test(site: Site) -> None:
        before = open_sockets()
        slow = [await site.slow() for _ in range(MAX)]
        assert await site.echo(b"x") == b"x"
        site.listener.close()
        await site.listener.wait_closed()
        for reader, writer in slow:
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
        with socket.create_server(("127.0.0.1", site.port)):
            pass

        async def is_all_closed() -> bool:
            return open_sockets() == before - 1  # the port is gone, too

        await eventually(is_all_closed, "all of the listener's and of the clients' are closed")

    run(test)


def open_sockets() -> int:
    """How many this process has."""
    return sum(one.is_socket() for one in Path("/proc/self/fd").iterdir())


def test_few_files_make_few_handshakes(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, expected in ((-1, 512), (4096, 512), (1024, 128), (20, 16)):
        monkeypatch.setattr("resource.getrlimit", lambda _, files=files: (files, files))
        assert most_handshakes() == expected


async def test_a_port_in_use_is_refused_and_a_name_binds_each_of_its_addresses() -> None:
    (first,) = await bound("127.0.0.1", 0)
    with first:
        first.listen()
        with pytest.raises(OSError, match="in use"):
            await bound("127.0.0.1", first.getsockname()[1])
    with pytest.raises(OSError, match="assign requested address"):
        await bound("192.0.2.1", 0)
    everywhere = await bound("", 0)
    try:
        assert {one.family for one in everywhere} >= {socket.AF_INET}
    finally:
        for one in everywhere:
            one.close()
