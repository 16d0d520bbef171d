"""The parts of a broker put together in one process: storage, metadata, dispatch, admin REST."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..broker.admin.app import AdminApp, make_app
from ..broker.admin.serve import WebServer, serve
from ..broker.config import BrokerConfig
from ..broker.namespaces import Namespaces
from ..broker.service import BrokerService
from ..broker.storage.config import StorageConfig
from ..broker.storage.store import Storage
from ..metadata.store_sqlite import SqliteStore
from .data_directory import METADATA_FILE, STORAGE_FOLDER, DataDirectory
from .lifetime import port_failure


def reachable(host: str) -> str:
    """Return the address by which this machine reaches a listener on ``host``."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)


@dataclass
class BrokerProcess:
    """A running broker.

    Attributes:
        service: the broker's core.
        web_url: where its REST interface answers.
    """

    directory: DataDirectory
    storage: Storage
    store: SqliteStore
    service: BrokerService
    app: AdminApp
    web: WebServer
    web_url: str

    @classmethod
    async def start(
        cls,
        config: BrokerConfig,
        storage_config: StorageConfig,
        directory: DataDirectory,
        supervised_worker: Callable[[], str | None] | None,
    ) -> BrokerProcess:
        """Recover the data, then listen: on the binary protocol's port first, on the web port when that serves.

        Raises:
            StorageError: the data cannot be read.
            Failure: a port cannot be listened on.
        """
        path: Path = directory.path
        store = await asyncio.to_thread(SqliteStore.open, path / METADATA_FILE)
        storage = await asyncio.to_thread(Storage.open, path / STORAGE_FOLDER, storage_config)
        storage.attach(asyncio.get_running_loop())
        namespaces = Namespaces(store, config.cluster)
        await namespaces.start()
        service = BrokerService(config, storage, namespaces, time.time)

        def worker_url() -> str | None:
            live = service.live_workers()
            if live:
                return f"http://{live[0][1]}:{live[0][2]}"
            return supervised_worker() if supervised_worker is not None else None

        try:
            await service.start()
        except OSError as exc:
            raise port_failure(exc, config.host, config.broker_port, "--broker-port") from exc
        app = make_app(service, namespaces, worker_url, is_worker_enabled=supervised_worker is not None)
        web, port = await serve(app, config.host, config.web_port)
        return cls(directory, storage, store, service, app, web, f"http://{reachable(config.host)}:{port}")

    async def stop(self) -> None:
        """Stop in reverse: no new requests, no connections, then what was written is closed."""
        await self.web.stop()
        await self.app.close()
        await self.service.stop()
        await self.storage.close()
        await self.store.close()
        self.directory.close()
