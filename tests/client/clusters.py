"""Brokers for client tests: ours on a thread of this process, or an Apache Pulsar."""

from __future__ import annotations

import json
import os
import urllib.request
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from magnetar.broker.storage.config import StorageConfig
from magnetar.testing import BrokerThread
from magnetar.wire.topic_name import parse_topic_name

_T = TypeVar("_T")


class OurBroker(BrokerThread):
    """Our broker on its own loop and thread, so that tests may block theirs."""

    is_pulsar = False
    acks_inside_batches = True

    def __init__(self, directory: Path, storage: StorageConfig | None = None, **settings: Any) -> None:
        super().__init__(directory, storage, **settings)
        self._names = count()

    def topic(self) -> str:
        """Return the name of a new topic."""
        return f"persistent://public/default/client-{next(self._names)}"

    def create_partitioned(self, topic: str, partitions: int) -> None:
        self.call(self.service.namespaces.create_partitioned_topic(parse_topic_name(topic), partitions))

    def add_partitions(self, topic: str, partitions: int) -> None:
        self.call(self.service.namespaces.update_partitions(parse_topic_name(topic), partitions))

    def unload(self, topic: str) -> None:
        self.call(self.service.unload_topic(parse_topic_name(topic)))

    def delete(self, topic: str) -> None:
        self.call(self.service.delete_topic(parse_topic_name(topic), force=True))

    def terminate(self, topic: str) -> None:
        async def terminate() -> None:
            await (await self.service.topic(parse_topic_name(topic))).terminate()

        self.call(terminate())

    def backlog(self, topic: str, subscription: str) -> int:
        """Return the number of messages that a subscription has not acknowledged."""

        async def stats() -> dict[str, Any]:
            return (await self.service.topic(parse_topic_name(topic))).stats()

        return int(self.call(stats())["subscriptions"][subscription]["msgBacklog"])


@dataclass
class TheirBroker:
    """A running Apache Pulsar, with its admin REST interface for operations that the protocol lacks."""

    service_url: str
    web_url: str
    acks_inside_batches: bool
    is_pulsar = True

    def __post_init__(self) -> None:
        self._names = count()
        self._run = os.urandom(4).hex()

    def close(self) -> None:
        """Do nothing: the broker belongs to another owner."""

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

    def delete(self, topic: str) -> None:
        self._admin("DELETE", topic, "?force=true")

    def terminate(self, topic: str) -> None:
        self._admin("POST", topic, "/terminate")

    def backlog(self, topic: str, subscription: str) -> int:
        stats = self._admin("GET", topic, "/stats?getPreciseBacklog=true")
        return int(stats["subscriptions"][subscription]["msgBacklog"])


Cluster = OurBroker | TheirBroker
