"""A complete broker in the test's event loop: real storage in a temporary directory, a free port, short delays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.namespaces import Namespaces
from magnetar.broker.policies.policies import default_policies
from magnetar.broker.service import BrokerService
from magnetar.broker.storage.config import StorageConfig
from magnetar.broker.storage.disk.disk import Disk
from magnetar.broker.storage.store import Storage
from magnetar.metadata.store.sqlite import SqliteStore

MIB = 1024 * 1024
JOURNAL_FILE_BYTES = 16 * MIB


@contextlib.asynccontextmanager
async def running_broker(
    directory: Path, disk: Disk | None = None, limits: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[BrokerService]:
    """Run a broker with the namespaces of the recordings; stop it and close its storage at the end."""
    store = SqliteStore.open(directory / "metadata.db")
    # Pings would come between the answers that a test waits for on a busy machine.
    defaults: dict[str, Any] = {"failover_delay_s": 0.05, "liveness_timeout_s": 2.0, "keep_alive_s": 600.0}
    config = BrokerConfig(broker_port=0, data_dir=directory, **(defaults | settings))
    namespaces = Namespaces(store, config)
    await namespaces.start()
    for name in ("public/wire", "public/wirelist", "public/wirewatch"):
        if not namespaces.has_namespace(name):
            await namespaces.create_namespace(name, default_policies("standalone"))
    storage_config = StorageConfig(**({"journal_file_bytes": JOURNAL_FILE_BYTES, "retry_s": 0.05} | (limits or {})))
    storage = Storage.open(directory / "storage", storage_config, disk)
    storage.attach(asyncio.get_running_loop())
    broker = BrokerService(config, storage, namespaces)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
        try:
            await storage.close()
        finally:
            await store.close()
