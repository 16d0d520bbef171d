"""A session with a ZooKeeper ensemble, used from one event loop.

Design: kazoo does its I/O in one thread and delivers results in a second one. Requests are submitted from the loop
without waiting, and results return through `call_soon_threadsafe`. So a request needs no thread of its own, and many
can be in flight, which lets the server sync them together. Kazoo reconnects indefinitely. Here a lost connection raises
`ConnectionBroken`, and connections are numbered, so that watches can be renewed after a reconnection.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.retry import KazooRetry

from ...errors import ClosedError, MetadataUnavailable
from ...tasks import call_in, settle, within

SESSION_TIMEOUT_S = 6.0
"""Session timeout. Kazoo tries another server after two thirds of it without a response, or after all of it on a new
connection. It is short, because nothing depends on the session."""
MAX_IN_FLIGHT = 1_000
"""Maximum unanswered requests; others wait. Kazoo is woken by a byte in a pipe, which must never be full."""
STOP_S = 2.0
"""Timeout for the server to confirm closing the session. Without it, the session expires later."""

log = logging.getLogger(__name__)
_LOST = (ConnectionLoss, ConnectionClosedError, OperationTimeoutError, SessionExpiredError, SessionMovedError)


class ConnectionBroken(Exception):
    """The connection was lost before the response. A read may be repeated; the outcome of a write is unknown.

    The store handles this error internally.
    """


class Session:
    """A connection that is re-established whenever it is lost.

    Attributes:
        servers: servers as ``host:port,host:port…``.
        generation: number of connections so far.
        on_connect: called on the loop after each connection.
    """

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.generation = 0
        self.on_connect: set[Callable[[], None]] = set()
        self._loop = asyncio.get_running_loop()
        self._is_connected = asyncio.Event()
        self._is_stopped = False
        self._lost_at: float | None = None
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._waiting: set[asyncio.Future[Any]] = set()
        quiet = logging.getLogger("kazoo")
        quiet.setLevel(logging.CRITICAL)  # kazoo logs each connection attempt; only losses are logged, below
        self._client = KazooClient(
            hosts=servers,
            timeout=SESSION_TIMEOUT_S,
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=1.0),
            logger=quiet,
        )
        self._client.add_listener(functools.partial(call_in, self._loop, self._state_is))

    def __repr__(self) -> str:
        return f"Session({self.servers!r}, generation={self.generation}, is_connected={self.is_connected})"

    @property
    def is_connected(self) -> bool:
        """Whether the session is connected now."""
        return self._is_connected.is_set() and not self._is_stopped

    async def start(self, timeout_s: float) -> None:
        """Connect.

        Raises:
            MetadataUnavailable: no server responded in time; the session is stopped.
        """
        try:
            self._client.start_async()
            if not await within(timeout_s, self._is_connected.wait()):
                raise MetadataUnavailable(
                    f"no ZooKeeper server responded at {self.servers} within {timeout_s:g} s: start it, or correct"
                    " metadataStoreUrl"
                )
        except BaseException:
            await self.stop()
            raise

    async def connected(self) -> int:
        """Wait for a connection and return its number.

        Raises:
            ClosedError: the session is closed.
        """
        await self._is_connected.wait()
        if self._is_stopped:
            raise ClosedError(f"the session with ZooKeeper {self.servers} is closed")
        return self.generation

    async def call(self, start: Callable[[Any], Any]) -> Any:
        """Send a request and return its result; ``start`` makes the request with a kazoo client.

        Raises:
            ConnectionBroken: the connection was lost before the response.
            KazooException: the server rejects the request.

        Cancellation: the request may still be executed.
        """
        async with self._slots:
            answer: asyncio.Future[Any] = self._loop.create_future()
            self._waiting.add(answer)
            try:
                start(self._client).rawlink(functools.partial(self._answered, answer))
                return await answer
            except _LOST as exc:
                raise ConnectionBroken(f"{type(exc).__name__} on ZooKeeper {self.servers}") from exc
            finally:
                self._waiting.discard(answer)

    async def stop(self) -> None:
        """Close the session. Pending calls raise an error."""
        if self._is_stopped:
            return
        self._is_stopped = True
        ended = asyncio.Event()
        # A separate thread, as default executor threads are awaited when the loop ends, and a server may not respond.
        threading.Thread(target=self._end, args=(ended,), name="zookeeper-stop", daemon=True).start()
        if not await within(STOP_S, ended.wait()):
            log.warning("ZooKeeper %s did not confirm the session close within %g s", self.servers, STOP_S)
        self._is_connected.set()  # wakes callers that wait in `connected`
        for answer in tuple(self._waiting):
            settle(answer, ConnectionBroken(f"the session with ZooKeeper {self.servers} was closed"))

    def _state_is(self, state: str) -> None:
        if self._is_stopped:
            return
        if state != KazooState.CONNECTED:
            if self._is_connected.is_set():
                self._is_connected.clear()
                self._lost_at = self._loop.time()
                log.warning(
                    "lost connection to ZooKeeper %s: serving open topics; metadata operations wait or fail until it is"
                    " restored",
                    self.servers,
                )
            return
        self.generation += 1
        # The server of this connection may lag behind the previous server. Responses are in request order, so this one
        # need not be awaited.
        self._client.sync_async("/")
        self._is_connected.set()
        if self._lost_at is not None:
            log.info("reconnected to ZooKeeper %s after %.1f s", self.servers, self._loop.time() - self._lost_at)
            self._lost_at = None
        for wake in tuple(self.on_connect):
            wake()

    # The rest runs in kazoo's threads, or in the one that ends the session.

    def _answered(self, answer: asyncio.Future[Any], result: Any) -> None:
        call_in(self._loop, settle, answer, result.value if result.exception is None else result.exception)

    def _end(self, ended: asyncio.Event) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as exc:  # noqa: BLE001  nothing depends on a clean close, and kazoo raises if it stops waiting
            log.info("closing the session with ZooKeeper %s failed: %s: %s", self.servers, type(exc).__name__, exc)
        call_in(self._loop, ended.set)
