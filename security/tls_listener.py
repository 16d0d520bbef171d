"""A TLS listener that limits unfinished handshakes.

Design: asyncio's servers do not expose a client until its handshake is complete, so a client that stalls in the
handshake could not be evicted. This listener accepts clients itself and tracks unfinished handshakes in order. Above
`MAX_HANDSHAKES`, or fewer if the process may open few files, the oldest is dropped in favour of the newest. This bounds
the number of open files. New clients can always connect, however many silent clients there are, unless as many others
connect during their handshake.
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
"""For example, IPv6 `localhost` on a machine without IPv6."""

log = logging.getLogger(__name__)


def most_handshakes() -> int:
    """Return a listener's maximum number of unfinished handshakes."""
    return part(HANDSHAKES, MAX_HANDSHAKES)


class TlsListener:
    """Accepts clients on bound sockets, which it owns. Bound to the running event loop.

    Attributes:
        sockets: the listening sockets.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        context: ssl.SSLContext,
        make: Callable[[], asyncio.BaseProtocol],
        timeout_s: float = HANDSHAKE_TIMEOUT_S,
    ) -> None:
        """Create the listener and start listening.

        Args:
            sockets: bound sockets.
            context: the server's TLS context.
            make: creates a client's protocol, whose `connection_made` is called after the handshake.
            timeout_s: timeout of a handshake.

        Raises:
            OSError: listening on a socket failed.
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
            # A failure, such as too many open files, is logged, and accepting resumes after a pause.
            accepting = self._tasks.keep(partial(self._accept, one), "clients")
            # Close the socket only then: the loop watches it until the task has ended.
            accepting.add_done_callback(partial(_close, one))
            self._accepting.append(accepting)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except ConnectionError:
                continue  # the client disconnected before it was accepted
            self._begin(client)
            await asyncio.sleep(0)  # sock_accept does not yield to the loop if a client is already waiting

    def _begin(self, client: socket.socket) -> None:
        if len(self._unfinished) >= self._max:
            oldest = next(iter(self._unfinished))
            del self._unfinished[oldest]
            oldest.cancel()
            log.info("dropped the oldest of %d unfinished TLS handshakes for a new client", self._max)
        handshake = self._tasks.start(self._shake_hands(client), "handshake")
        self._unfinished[handshake] = None

        def ended(_: asyncio.Task[None]) -> None:
            self._unfinished.pop(handshake, None)
            if handshake.cancelled():
                client.close()  # a handshake cancelled before it began has no transport that would close it

        handshake.add_done_callback(ended)

    async def _shake_hands(self, client: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, client, ssl=self._context, ssl_handshake_timeout=self._timeout_s
            )
        except OSError as error:  # a TLS error, a timeout, or a disconnect; the connection is closed
            log.debug("TLS handshake with a client failed: %s", error)

    def close(self) -> None:
        """Stop accepting clients, and drop clients whose handshake is not complete."""
        for one in (*self._accepting, *self._unfinished):
            one.cancel()

    async def wait_closed(self) -> None:
        """Wait until the tasks have ended. Cancellation: safe; may be called again."""
        await self._tasks.close()


def _close(listener: socket.socket, _: asyncio.Task[None]) -> None:
    listener.close()


async def bound(host: str, port: int) -> list[socket.socket]:
    """Return sockets bound to each local address of a host.

    Args:
        host: name or address; empty for all addresses.
        port: port; 0 selects a free port for each socket.

    Raises:
        OSError: an address is in use, or the machine has none of the addresses.
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
