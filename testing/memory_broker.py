"""The production broker in memory, on the caller's event loop, with a simulated disk.

Topics, subscriptions, redelivery, delays, expiry and deduplication are the broker's own. Only its storage writes to a
`SimulatedDisk`, on the loop itself instead of on threads, and all its time comes from the test's clock.

It is never stopped: it ends with the process, and its data is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from ..broker.config import BrokerConfig
from ..broker.policies.namespaces import Namespaces
from ..broker.service import BrokerService
from ..broker.storage.config import MIB, StorageConfig
from ..broker.storage.disk.lanes import Task
from ..broker.storage.store import Storage
from ..metadata.store.sqlite import SqliteStore
from .clock import MovableClock
from .simulated_disk import SimulatedDisk

_KEEP_ALIVE_S = 86_400.0  # advancing the clock by hours must not make a live peer look silent
_T = TypeVar("_T")


class LoopLanes:
    """All lanes of a storage on the event loop; see `broker.storage.disk.lanes.Lanes`."""

    def __init__(self, hand_over: Task, write_turn: Task) -> None:
        """Prepare, on the loop."""
        self._loop = asyncio.get_running_loop()
        self._hand_over = hand_over
        self._write_turn = write_turn
        self._is_wake_planned = False

    def on_loop(self, task: Task) -> None:
        """See `Lanes`."""
        self._loop.call_soon(task)

    def later_on_loop(self, delay_s: float, task: Task) -> None:
        """See `Lanes`."""
        self._loop.call_later(delay_s, task)

    def wake_writer(self) -> None:
        """See `Lanes`."""
        if not self._is_wake_planned:
            self._is_wake_planned = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._is_wake_planned = False
        self._hand_over()
        self._write_turn()

    def in_background(self, task: Task) -> None:
        """See `Lanes`."""
        self._loop.call_soon(task)

    def reading(self, job: Callable[[], _T]) -> Future[_T]:
        """See `Lanes`."""
        future: Future[_T] = Future()
        try:
            future.set_result(job())
        except Exception as error:  # noqa: BLE001  raised in the awaiting code
            future.set_exception(error)
        return future

    def stop(self) -> None:
        """See `Lanes`."""
        self._write()


class MemoryBroker:
    """A broker without REST interface, on the running event loop.

    Attributes:
        service: the broker.
    """

    def __init__(self, service: BrokerService) -> None:
        """Wrap the broker created by `start`."""
        self.service = service

    @classmethod
    async def start(cls, clock: MovableClock, directory: Path) -> MemoryBroker:
        """Start a broker on a free port of the loopback interface.

        Args:
            clock: its time.
            directory: for the metadata of tenants and namespaces.
        """
        store = await asyncio.to_thread(SqliteStore.open, directory / "metadata.sqlite")
        config = BrokerConfig(
            data_dir=directory,
            broker_port=0,
            web_port=0,
            keep_alive_s=_KEEP_ALIVE_S,
            deduplication=True,
            failover_delay_s=0,  # no earlier consumer has acknowledgements in flight
        )
        storage = Storage.open(
            "/memory", StorageConfig(journal_file_bytes=MIB), SimulatedDisk(), clock.time, monotonic=clock.monotonic
        )
        storage.attach(asyncio.get_running_loop(), LoopLanes)
        namespaces = Namespaces(store, config)
        await namespaces.start()
        service = BrokerService(config, storage, namespaces, clock.time)
        await service.start()
        return cls(service)

    def backlog(self, topic: str, subscription: str) -> int:
        """Return the number of a subscription's unacknowledged messages, or of entries if they are batched."""
        loaded = self.service.topics.get(topic)
        found = loaded.subscriptions.get(subscription) if loaded is not None else None
        return found.cursor.backlog_entries if found is not None else 0
