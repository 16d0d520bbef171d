"""Package topics: the storage of `metadata.packages`, accessed through the client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from ...client.client import AsyncClient
from ...client.config import ConsumerConfig, ProducerConfig, ReaderConfig
from ...errors import MagnetarError, OperationTimeout, PackageError
from ...metadata.packages import PartWriter
from ...wire.message_id import EARLIEST

KEEP = "keep"
"""Durable subscription that protects a package from deletion, as it never acknowledges anything."""

_READ_TIMEOUT_S = 30.0
_QUEUE = 4
"""Receiver queue size in parts, small because parts are large."""


class PackageTopics:
    """Reads and writes the `package-<id>` topics of one namespace."""

    def __init__(self, client: AsyncClient, topic_prefix: str) -> None:
        """Create the storage; topic names are `topic_prefix` followed by the package id."""
        self._client = client
        self._prefix = topic_prefix

    def topic(self, package_id: str) -> str:
        """Return the name of a package's topic."""
        return self._prefix + package_id

    @asynccontextmanager
    async def write(self, package_id: str) -> AsyncIterator[PartWriter]:
        """Open the topic for writing, and create the subscription `keep` before the first part is written."""
        topic = self.topic(package_id)
        holder = await self._client.subscribe(
            topic, KEEP, ConsumerConfig(type="Shared", initial_position="Earliest", receiver_queue_size=0)
        )
        await holder.close()
        producer = await self._client.create_producer(topic, ProducerConfig(batching=False, block_if_queue_full=True))
        try:

            async def send(payload: bytes, properties: Mapping[str, str]) -> None:
                await producer.send(payload, properties=properties)

            yield send
        finally:
            await producer.close()

    async def read(self, package_id: str) -> AsyncIterator[tuple[bytes, Mapping[str, str]]]:
        """Yield all parts that the topic contains at the time of the call."""
        topic = self.topic(package_id)
        reader = await self._client.create_reader(topic, EARLIEST, ReaderConfig(receiver_queue_size=_QUEUE))
        try:
            last = await reader.last_message_id()
            if last.entry_id < 0:
                return
            while True:
                try:
                    message = await reader.read_next(_READ_TIMEOUT_S)
                except OperationTimeout as exc:
                    raise PackageError(f"received nothing from {topic} for {_READ_TIMEOUT_S:g} s: retry") from exc
                yield message.data, message.properties
                if message.message_id[:2] >= last[:2]:
                    return
        finally:
            await reader.close()

    async def last_properties(self, package_id: str) -> Mapping[str, str] | None:
        """Return the properties of the topic's last message, or None if the topic is empty or unreadable."""
        topic = self.topic(package_id)
        try:
            probe = await self._client.create_reader(topic, EARLIEST, ReaderConfig(receiver_queue_size=1))
            try:
                last = await probe.last_message_id()
            finally:
                await probe.close()
            if last.entry_id < 0:
                return None
            config = ReaderConfig(start_inclusive=True, receiver_queue_size=1)
            reader = await self._client.create_reader(topic, last, config)
            try:
                return (await reader.read_next(_READ_TIMEOUT_S)).properties
            finally:
                await reader.close()
        except MagnetarError:
            # Any error here also affects the write that follows, which reports or resolves it.
            return None
