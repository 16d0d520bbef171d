"""The real broker under the workers of a story, with its disturbances."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Coroutine, Mapping
from typing import Any

from magnetar.broker.service import BrokerService
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig, ReaderConfig
from magnetar.errors import MagnetarError
from magnetar.membership.manager import SUBSCRIPTION, Member, Participation
from magnetar.wire.message_id import EARLIEST
from magnetar.wire.payload import seal
from magnetar.wire.pulsar_api_pb2 import MessageMetadata
from magnetar.wire.topic_name import parse_topic_name

from .simulated_broker import Hear, Link, Record, Spawn
from .simulated_cluster import ASSIGNMENTS, CONFIG, METADATA

COORDINATE = CONFIG.topic(CONFIG.coordination_topic)
TOPICS = (METADATA, ASSIGNMENTS, COORDINATE)
STRANGER_S = 0.3
LOOK_S = 20.0


class _Killable:
    def __init__(self, broker: RealBroker, client: AsyncClient) -> None:
        self._broker = broker
        self._client = client

    def kill(self) -> None:
        """Close the client in the background; its connection is cut at the same time."""
        self._broker.later(self._client.close())


class RealBroker:
    """A broker in the test's event loop, and an observer of its metadata topic."""

    def __init__(self, service: BrokerService) -> None:
        assert service.broker_url
        self._service = service
        self._url = service.broker_url
        self._tasks: set[asyncio.Task[Any]] = set()
        self._strangers = itertools.count()
        self._written = itertools.count()
        self._observer = AsyncClient(self._url)
        self._looking = asyncio.Lock()
        self.records: list[Record] = []

    async def __aenter__(self) -> RealBroker:
        for topic in TOPICS:
            await self._service.create_topic(parse_topic_name(topic))
        self._reader = await self._observer.create_reader(METADATA, EARLIEST, ReaderConfig())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._observer.close()

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in the background, ignoring errors of Magnetar, which are part of the disturbance."""

        async def quietly() -> None:
            with contextlib.suppress(MagnetarError):
                await work

        task = asyncio.create_task(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def look(self) -> None:
        """Wait until `records` contains everything in the topic."""
        async with self._looking, asyncio.timeout(LOOK_S):
            while True:
                try:
                    return await self._read()
                except MagnetarError:  # the topic was unloaded under the reader, which comes back
                    await asyncio.sleep(0.02)

    async def _read(self) -> None:
        while await self._reader.has_message_available():
            message = await self._reader.read_next(30)
            position = (message.message_id.ledger_id, message.message_id.entry_id)
            self.records.append(Record(position, message.key, message.data, dict(message.properties)))

    def client(self, link: Link) -> tuple[AsyncClient, _Killable]:
        """Return a worker's client, and a function that kills it."""
        client = AsyncClient(self._url)
        return client, _Killable(self, client)

    async def enter(self, link: Link, client: AsyncClient, hear: Hear, spawn: Spawn) -> Participation:
        """Take part in the election."""
        return await self._join(client, link.member.consumer_name, hear)

    async def _join(self, client: AsyncClient, name: str, hear: Hear) -> Participation:
        config = ConsumerConfig(type="Failover", name=name, initial_position="Earliest", on_active_change=hear)
        return await client.subscribe(COORDINATE, SUBSCRIPTION, config)

    async def read_stats(self, link: Link) -> Mapping[str, Any]:
        """Return the statistics of the coordination topic."""
        return (await self._service.topic(parse_topic_name(COORDINATE))).stats()

    def cut(self, link: Link) -> None:
        """Close the connection that a worker uses for the election and for writing."""
        mine = (link.member.consumer_name, f"{link.member.worker_id}-")
        for connection in list(self._service.connections):
            names = [*(one.name for one in connection.consumers.values())]
            names += [one.name for one in connection.producers.values()]
            if any(name.startswith(mine) for name in names):
                connection.abort()

    def turn(self) -> None:
        """Let an unrelated consumer join briefly: it leads no worker, but changes the active consumer."""
        self.later(self._stranger(Member(f"stranger{next(self._strangers)}", "h", 1)))

    async def _stranger(self, member: Member) -> None:
        async with AsyncClient(self._url) as client:
            await self._join(client, member.consumer_name, lambda is_active: None)
            await asyncio.sleep(STRANGER_S)

    def compact(self) -> None:
        """Compact the logs."""
        for topic in list(self._service.topics.values()):
            if str(topic.name) in (METADATA, ASSIGNMENTS):
                with contextlib.suppress(MagnetarError):
                    topic.begin_compaction()

    def roll(self) -> None:
        """Unload the topics: their clients reconnect to new ledgers."""
        for topic in TOPICS:
            self.later(self._service.unload_topic(parse_topic_name(topic)))

    def junk(self, key: str | None, value: bytes) -> None:
        """Write to the metadata topic as an unrelated client."""
        self.later(self._write(key, value))

    async def _write(self, key: str | None, value: bytes) -> None:
        number = next(self._written)
        metadata = MessageMetadata(producer_name="stranger", sequence_id=number, publish_time=self._service.now_ms())
        if key is not None:
            metadata.partition_key = key
        topic = await self._service.topic(parse_topic_name(METADATA))
        await topic.publish(seal(metadata, value), 1, metadata.publish_time)
