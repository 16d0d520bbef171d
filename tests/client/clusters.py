"""The brokers that client tests talk to: ours in a thread of this process, or an Apache Pulsar."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import urllib.request
from collections.abc import Coroutine
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import uvloop
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.namespaces import Namespaces
from magnetar.broker.service import BrokerService
from magnetar.broker.storage.config import StorageConfig
from magnetar.broker.storage.store import Storage
from magnetar.metadata.store.sqlite import SqliteStore
from magnetar.wire.topic_name import parse_topic_name

_T = TypeVar("_T")


class OurBroker:
    """Our broker on a loop and thread of its own, so that tests may block theirs."""

    is_pulsar = False
    acks_inside_batches = True
    storage_config = StorageConfig()

    def __init__(self, directory: Path, **settings: Any) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker", daemon=True)
        self._thread.start()
        self._config = BrokerConfig(data_dir=directory, broker_port=0, web_port=0, **settings)
        self._names = count()
        self._call(self._start(directory))

    def _call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _start(self, directory: Path) -> None:
        self._store = await asyncio.to_thread(SqliteStore.open, directory / "metadata.sqlite")
        self._storage = await asyncio.to_thread(Storage.open, directory / "storage", self.storage_config)
        self._storage.attach(asyncio.get_running_loop())
        self._namespaces = Namespaces(self._store, self._config.cluster)
        await self._namespaces.start()
        self._service = BrokerService(self._config, self._storage, self._namespaces)
        await self._service.start()

    async def _stop(self) -> None:
        await self._service.stop()
        await self._storage.close()
        await self._store.close()

    def close(self) -> None:
        try:
            self._call(self._stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(60)
            self._loop.close()

    @property
    def service_url(self) -> str:
        return self._service.broker_url

    def topic(self) -> str:
        """A topic that does not exist yet."""
        return f"persistent://public/default/client-{next(self._names)}"

    def create_partitioned(self, topic: str, partitions: int) -> None:
        self._call(self._namespaces.create_partitioned_topic(parse_topic_name(topic), partitions))

    def add_partitions(self, topic: str, partitions: int) -> None:
        self._call(self._namespaces.update_partitions(parse_topic_name(topic), partitions))

    def unload(self, topic: str) -> None:
        self._call(self._service.unload_topic(parse_topic_name(topic)))

    def terminate(self, topic: str) -> None:
        async def terminate() -> None:
            await (await self._service.topic(parse_topic_name(topic))).terminate()

        self._call(terminate())

    def backlog(self, topic: str, subscription: str) -> int:
        """Messages that a subscription has not acknowledged."""

        async def stats() -> dict[str, Any]:
            return (await self._service.topic(parse_topic_name(topic))).stats()

        return int(self._call(stats())["subscriptions"][subscription]["msgBacklog"])


@dataclass
class TheirBroker:
    """A running Apache Pulsar, reached over its admin REST for what the protocol does not offer."""

    service_url: str
    web_url: str
    acks_inside_batches: bool
    is_pulsar = True

    def __post_init__(self) -> None:
        self._names = count()
        self._run = os.urandom(4).hex()

    def close(self) -> None:
        """Nothing: it is not ours."""

    def topic(self) -> str:
        return f"persistent://public/default/client-{self._run}-{next(self._names)}"

    def _admin(self, method: str, topic: str, path: str, body: Any = None) -> Any:
        name = parse_topic_name(topic)
        request = urllib.request.Request(
            f"{self.web_url}/admin/v2/{name.rest_path}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def create_partitioned(self, topic: str, partitions: int) -> None:
        self._admin("PUT", topic, "/partitions", partitions)

    def add_partitions(self, topic: str, partitions: int) -> None:
        self._admin("POST", topic, "/partitions", partitions)

    def unload(self, topic: str) -> None:
        self._admin("PUT", topic, "/unload")

    def terminate(self, topic: str) -> None:
        self._admin("POST", topic, "/terminate")

    def backlog(self, topic: str, subscription: str) -> int:
        stats = self._admin("GET", topic, "/stats?getPreciseBacklog=true")
        return int(stats["subscriptions"][subscription]["msgBacklog"])


Cluster = OurBroker | TheirBroker
