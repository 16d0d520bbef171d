"""Receiving through TLS into a buffer that connections share: nothing is lost, mixed up or changed afterwards."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from magnetar.security.tls_reception import BUFFER_BYTES, TlsReception

from tests.support.certificates import Authority, server_context

SEED = 17
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Receiver(asyncio.Protocol):
    """Keeps what comes, and stops reading for a turn of the loop after each piece if it is told to."""

    def __init__(self, *, pauses: bool) -> None:
        self._pauses = pauses
        self.pieces: list[bytes] = []
        self.has_ended = False
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport  # uvloop's is no `asyncio.Transport`

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        if self._pauses:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._transport.resume_reading)

    def eof_received(self) -> bool:
        self.has_ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


@pytest.mark.parametrize("make_loop", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("pauses", [False, True], ids=["flowing", "pausing"])
def test_connections_receive_what_was_sent_to_each(
    tmp_path: Path, make_loop: Callable[[], asyncio.AbstractEventLoop], pauses: bool
) -> None:
    authority = Authority(tmp_path)
    server = server_context(authority.issue("server"))
    client = ssl.create_default_context(cafile=str(authority.file))
    rng = random.Random(SEED)
    contents = [rng.randbytes(size) for size in (3 * BUFFER_BYTES + 7, 5, BUFFER_BYTES)]
    with asyncio.Runner(loop_factory=make_loop) as runner:
        receivers = runner.run(asyncio.wait_for(_exchange(server, client, contents, pauses), 30))
    received = [b"".join(receiver.pieces) for receiver in receivers]
    assert sorted(received, key=len) == sorted(contents, key=len)
    assert all(type(piece) is bytes for receiver in receivers for piece in receiver.pieces)
    assert all(receiver.has_ended and receiver.lost.result() is None for receiver in receivers)


async def _exchange(
    server: ssl.SSLContext, client: ssl.SSLContext, contents: list[bytes], pauses: bool
) -> list[Receiver]:
    receivers: list[Receiver] = []

    def receiver() -> TlsReception:
        receivers.append(Receiver(pauses=pauses))
        return TlsReception(receivers[-1])

    listening = await asyncio.get_running_loop().create_server(receiver, "127.0.0.1", 0, ssl=server)
    port = listening.sockets[0].getsockname()[1]
    streams = [await asyncio.open_connection("127.0.0.1", port, ssl=client) for _ in contents]
    for (_, writer), content in zip(streams, contents, strict=True):
        writer.write(content)
    for _, writer in streams:
        writer.close()
    for receiver_ in receivers:
        await receiver_.lost
    listening.close()
    return receivers


def test_writing_is_paused_and_resumed_through_it() -> None:
    calls: list[str] = []

    class Writer(asyncio.Protocol):
        def pause_writing(self) -> None:
            calls.append("pause")

        def resume_writing(self) -> None:
            calls.append("resume")

    reception = TlsReception(Writer())
    reception.pause_writing()
    reception.resume_writing()
    assert calls == ["pause", "resume"]
