"""The production broker on the caller's event loop, with the in-memory storage engine.

Topics, subscriptions, redelivery, delays, expiry and deduplication work as in production, but all times come from the
test's clock.

The broker is never stopped: it ends with the process, and its data is lost.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from ..broker.config import BrokerConfig
from ..broker.policies.namespaces import Namespaces
from ..broker.service import BrokerService
from ..broker.storage.memory import MemoryStore
from ..metadata.store.sqlite import SqliteStore
from .clock import MovableClock

_KEEP_ALIVE_S = 86_400.0  # advancing the clock by hours must not time out live peers


class MemoryBroker:
    """A broker without a REST interface, on the running event loop.

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
            clock: the broker's clock.
            directory: directory for the metadata of tenants and namespaces.
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
        storage = MemoryStore(clock.time)
        namespaces = Namespaces(store, config)
        await namespaces.start()
        service = BrokerService(config, storage, namespaces, clock.time)
        await service.start()
        return cls(service)

    def backlog(self, topic: str, subscription: str) -> int:
        """Return a subscription's number of unacknowledged messages, or of entries if messages are batched."""
        loaded = self.service.topics.get(topic)
        found = loaded.subscriptions.get(subscription) if loaded is not None else None
        return found.cursor.backlog_entries if found is not None else 0
