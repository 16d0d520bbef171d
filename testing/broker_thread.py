"""A broker on a thread of this process, for tests of producers and consumers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from ..broker.config import BrokerConfig
from ..broker.policies.namespaces import Namespaces
from ..broker.service import BrokerService
from ..broker.storage.config import StorageConfig
from ..broker.storage.store import Storage
from ..metadata.store.sqlite import SqliteStore

_TIMEOUT_S = 60.0
"""Timeout for starting, stopping and each call, in seconds."""

_T = TypeVar("_T")


class BrokerThread:
    """A broker on its own event loop and thread, so that the test may block; it listens on a free port.

    The broker has no REST interface and no workers; topics are created on first use.

    Attributes:
        service: the broker, which must only be used on its loop (`call`).
    """

    def __init__(self, directory: Path, storage: StorageConfig | None = None, **settings: Any) -> None:
        """Start a broker.

        Args:
            directory: data directory; existing data is opened.
            storage: storage settings.
            **settings: fields of `BrokerConfig`.
        """
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker", daemon=True)
        self._thread.start()
        self._config = BrokerConfig(data_dir=directory, broker_port=0, web_port=0, **settings)
        self.service = self.call(self._start(directory, storage or StorageConfig()))

    async def _start(self, directory: Path, config: StorageConfig) -> BrokerService:
        self._store = await asyncio.to_thread(SqliteStore.open, directory / "metadata.sqlite")
        self._storage = await asyncio.to_thread(Storage.open, directory / "storage", config)
        self._storage.attach(asyncio.get_running_loop())
        namespaces = Namespaces(self._store, self._config)
        await namespaces.start()
        service = BrokerService(self._config, self._storage, namespaces)
        await service.start()
        return service

    @property
    def service_url(self) -> str:
        """The URL for clients."""
        return self.service.broker_url

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the broker's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_TIMEOUT_S)

    def close(self) -> None:
        """Stop the broker and its thread; the data directory remains."""
        try:
            self.call(self._stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_TIMEOUT_S)
            self._loop.close()

    async def _stop(self) -> None:
        await self.service.stop()
        await self._storage.close()
        await self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
