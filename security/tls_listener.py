"""A listener whose clients shake hands by TLS before anything else hears of them.

Design: the event loop's own servers know nothing of a client until its handshake is complete, so a client that begins
one and does not go on could only be waited for. This listener takes each client itself and keeps the unfinished
handshakes in their order: above `MAX_HANDSHAKES` of them, fewer where the process may open few files, the oldest gives
way to the newest. So many files do they cost at most, and however many clients connect and say nothing, another one
still gets in, as long as fewer than that come while it shakes hands.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..tasks import TaskSet
from .open_files import HANDSHAKES, part

HANDSHAKE_TIMEOUT_S = 10.0
MAX_HANDSHAKES = 512
BACKLOG = 1024
_NOT_HERE = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""Such as `localhost` of IPv6 on a machine without it."""

log = logging.getLogger(__name__)


def most_handshakes() -> int:
    """Return how many unfinished handshakes a listener has at most."""
    return part(HANDSHAKES, MAX_HANDSHAKES)


class TlsListener:
    """Takes clients on sockets that are bound, which it closes in the end. Bound to the running event loop.

    Attributes:
        sockets: on which it listens.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        context: ssl.SSLContext,
        make: Callable[[], asyncio.BaseProtocol],
        timeout_s: float = HANDSHAKE_TIMEOUT_S,
    ) -> None:
        """Begin to listen.

        Args:
            sockets: bound ones.
            context: of the server.
            make: makes the protocol of a client; that hears of it once the handshake is complete.
            timeout_s: how long a handshake may take.

        Raises:
            OSError: a socket cannot be listened on.
        """
        self.sockets = tuple(sockets)
        self._context = context
        self._make = make
        self._timeout_s = timeout_s
        self._max = most_handshakes()
        self._unfinished: dict[asyncio.Task[None], None] = {}
        self._tasks = TaskSet("TLS listener")
        for one in self.sockets:
            one.setblocking(False)
            one.listen(BACKLOG)
        self._accepting: list[asyncio.Task[None]] = []
        for one in self.sockets:
            # A failure, such as no more files, is in the log, and after a pause the next client has its turn.
            accepting = self._tasks.keep(partial(self._accept, one), "clients")
            # Not before: the loop looks at the socket until the task has ended.
            accepting.add_done_callback(partial(_close, one))
            self._accepting.append(accepting)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except ConnectionError:
                continue  # it was gone before it was taken
            self._begin(client)
            await asyncio.sleep(0)  # one that is there already is taken without a turn of the loop

    def _begin(self, client: socket.socket) -> None:
        if len(self._unfinished) >= self._max:
            oldest = next(iter(self._unfinished))
            del self._unfinished[oldest]
            oldest.cancel()
            log.info("the oldest of %d unfinished TLS handshakes gives way to a new client", self._max)
        handshake = self._tasks.start(self._shake_hands(client), "handshake")
        self._unfinished[handshake] = None

        def ended(_: asyncio.Task[None]) -> None:
            self._unfinished.pop(handshake, None)
            if handshake.cancelled():
                client.close()  # one that never began has no transport that would

        handshake.add_done_callback(ended)

    async def _shake_hands(self, client: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, client, ssl=self._context, ssl_handshake_timeout=self._timeout_s
            )
        except OSError as error:  # of TLS, a time-out, or a client that went; the connection is closed
            log.debug("a client shook no hands: %s", error)

    def close(self) -> None:
        """Take no more clients, and drop those whose handshake is not complete."""
        for one in (*self._accepting, *self._unfinished):
            one.cancel()

    async def wait_closed(self) -> None:
        """End what runs. Cancellation: safe; call again."""
        await self._tasks.close()


def _close(listener: socket.socket, _: asyncio.Task[None]) -> None:
    listener.close()


async def bound(host: str, port: int) -> list[socket.socket]:
    """Return sockets bound to each address of a host that this machine has.

    Args:
        host: name or address; empty for all.
        port: 0 takes a free one for each.

    Raises:
        OSError: one is in use, or the machine has none of them.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                sockets.append(_bound(socket.socket(family, kind, protocol), address))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error
        if missing is not None and not sockets:
            raise missing
    except BaseException:
        for one in sockets:
            one.close()
        raise
    return sockets


def _bound(one: socket.socket, address: Any) -> socket.socket:
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if one.family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
    except BaseException:
        one.close()
        raise
    return one
