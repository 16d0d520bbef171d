"""A complete broker in the test's event loop, and a client for its web port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from magnetar.broker.admin.app import AdminApp
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.namespaces import Namespaces
from magnetar.broker.service import BrokerService
from magnetar.broker.storage.config import StorageConfig
from magnetar.broker.storage.store import Storage
from magnetar.metadata.store.sqlite import SqliteStore
from magnetar.web.serve import serve


@dataclass
class RunningBroker:
    service: BrokerService
    namespaces: Namespaces
    app: AdminApp
    web_url: str
    http: httpx.AsyncClient
    worker_url: str | None = None


@pytest.fixture
def storage_config() -> StorageConfig:
    return StorageConfig(journal_file_bytes=4 * 1024 * 1024, checkpoint_bytes=2 * 1024 * 1024)


@pytest.fixture
async def broker(tmp_path: Path, storage_config: StorageConfig) -> AsyncIterator[RunningBroker]:
    store = SqliteStore.open(tmp_path / "metadata.db")
    config = BrokerConfig(data_dir=tmp_path, broker_port=0, web_port=0)
    namespaces = Namespaces(store, config)
    await namespaces.start()
    storage = Storage.open(tmp_path / "data", storage_config)
    storage.attach(asyncio.get_running_loop())
    service = BrokerService(config, storage, namespaces)
    await service.start()
    running: RunningBroker

    def worker_url() -> str | None:
        return running.worker_url

    app = AdminApp(service, namespaces, worker_url)
    server, port = await serve(app, "127.0.0.1", 0)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        running = RunningBroker(service, namespaces, app, f"http://127.0.0.1:{port}", http)
        yield running
    await server.stop()
    await app.close()
    await service.stop()
    await storage.close()
    await store.close()
