"""The environment of functions under test: an in-memory or existing broker, and other services for instances.

One cluster serves all tests of a process, because starting it takes longer than a test. Tests are isolated by separate
topics and state tables.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ..client.client import AsyncClient
from ..client.config import ClientConfig
from ..client.deduplication import switch_on
from ..client.deploy.rest import derive_admin_url
from ..state.client import TableClient
from ..state.server import TableServer
from ..web.client import request
from ..wire.topic_name import parse_topic_name
from .clock import LoopThread, MovableClock, MovableLoop
from .memory_broker import MemoryBroker

SERVICE_URL_VARIABLE = "MAGNETAR_TEST_SERVICE_URL"
ADMIN_URL_VARIABLE = "MAGNETAR_TEST_ADMIN_URL"
"""Differs from the command line's variables, so that tests do not run on a production broker by accident."""
_KEEP_ALIVE_S = 86_400.0
_ANSWER_S = 10.0
_IN_MEMORY = "/dev/shm"  # noqa: S108 (made by mkdtemp)


class Cluster:
    """A broker and a state store.

    Attributes:
        loop: runs everything except functions and the state store.
        is_real: whether the broker is an existing one, whose clock cannot be advanced.
    """

    def __init__(self, service_url: str = "", admin_url: str = "") -> None:
        """Start the required services.

        Args:
            service_url: URL of an existing broker; empty to start an in-memory broker.
            admin_url: URL of its REST interface; empty for the default port of a broker on its default port.
        """
        self.is_real = bool(service_url)
        self.service_url = service_url
        self._admin_url = admin_url
        self._directory = Path(tempfile.mkdtemp(prefix="magnetar-testing-", dir=_fast_directory()))
        self._clock = MovableClock()
        self.loop = MovableLoop(self._clock)
        self._thread = LoopThread(self.loop, "functions under test")
        self._state: TableServer | None = None
        self._tables: TableClient | None = None
        self._number = 0
        self.call(self._start())

    async def _start(self) -> None:
        self._broker: MemoryBroker | None = None
        if not self.is_real:
            self._broker = await MemoryBroker.start(self._clock, self._directory)
            self.service_url = self._broker.service.broker_url

    async def make_client(self, rename: Callable[[str], str]) -> AsyncClient:
        """Return a client that renames topics on the broker."""
        config = ClientConfig(description="functions under test", backoff_max_ms=1000)
        if not self.is_real:
            config = ClientConfig(description="functions under test", keep_alive_s=_KEEP_ALIVE_S)
        return AsyncClient(self.service_url, config, clock=self._clock.time, rename=rename)

    def call(self, coroutine: Any, timeout_s: float | None = None) -> Any:
        """Run a coroutine on the loop and return its result."""
        return self._thread.call(coroutine, timeout_s)

    def directory(self) -> Path:
        """Create a directory and return its path."""
        self._number += 1
        directory = self._directory / str(self._number)
        directory.mkdir()
        return directory

    def time(self) -> float:
        """Return the seconds since 1970 by the clock that tests control."""
        return self._clock.time()

    def advance(self, seconds: float, timeout_s: float) -> None:
        """Advance the clock; with a real broker, wait for the same time."""
        if self.is_real:
            self.call(asyncio.sleep(seconds), seconds + timeout_s)
        else:
            self.loop.advance(seconds, timeout_s)

    @property
    def state_url(self) -> str:
        """The state store's URL; the first access starts it."""
        if self._state is None:
            directory = self._directory / "state"
            directory.mkdir()
            self._state = TableServer.start(directory)
        return self._state.url

    @property
    def tables(self) -> TableClient:
        """A client of the state store."""
        if self._tables is None:
            self._tables = TableClient(self.state_url)
        return self._tables

    async def backlog(self, topic: str, subscription: str) -> int:
        """Return the number of unacknowledged messages of a topic."""
        if self._broker is not None:
            return self._broker.backlog(topic, subscription)
        path = parse_topic_name(topic).rest_path
        url = f"{self.admin_url}/admin/v2/{path}/stats"
        answer = await asyncio.to_thread(request, "GET", url, timeout_s=_ANSWER_S)
        subscriptions = answer.json()["subscriptions"] if answer.is_success else {}
        return int(subscriptions.get(subscription, {}).get("msgBacklog", 0))

    async def drop_duplicates(self, topic: str) -> None:
        """Enable deduplication for a topic; the in-memory broker has it enabled for all topics."""
        if self.is_real:
            await asyncio.to_thread(switch_on, self.admin_url, topic)

    @property
    def admin_url(self) -> str:
        """URL of an existing broker's REST interface."""
        return self._admin_url or derive_admin_url(self.service_url)

    def abandon(self) -> None:
        """Remove the files when the process exits, which ends its threads and connections."""
        shutil.rmtree(self._directory, ignore_errors=True)


@cache
def _shared(process: int, service_url: str, admin_url: str) -> Cluster:
    cluster = Cluster(service_url, admin_url)
    atexit.register(lambda: cluster.abandon() if os.getpid() == process else None)
    return cluster


def shared_cluster() -> Cluster:
    """Return this process's cluster, configured by environment variables; the first call starts it."""
    service_url = os.environ.get(SERVICE_URL_VARIABLE, "")
    return _shared(os.getpid(), service_url, os.environ.get(ADMIN_URL_VARIABLE, ""))


def _fast_directory() -> str | None:
    """Return an in-memory directory, or None for the default."""
    return _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
