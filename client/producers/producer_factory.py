"""Creates a client's producers, one per partition: selects their class and sets up shared parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...wire.topic_name import TopicName
from ..checks import as_topic_name
from ..config import ProducerConfig
from ..connections.cluster import Cluster
from ..connections.opened import Opened
from ..schemas.schema import SchemaInfo
from ..statistics import Intervals
from .chunking import ChunkingProducer, InterceptedChunkingProducer
from .intercepted import InterceptedPartitionedProducer, InterceptedProducer
from .memory import MemoryLimit
from .observed_queue import Shared
from .partitioned import PartitionedProducer
from .producer import Producer

if TYPE_CHECKING:
    from ..encryption.encryption import Encryption

_CLASSES: dict[tuple[bool, bool], type[Producer]] = {
    (False, False): Producer,
    (True, False): InterceptedProducer,
    (False, True): ChunkingProducer,
    (True, True): InterceptedChunkingProducer,
}
"""Producer class, by whether it has interceptors and whether it sends chunks."""


class ProducerFactory:
    """Creates producers.

    Attributes:
        shared: parts shared by all producers, if any.
    """

    def __init__(self, cluster: Cluster, opened: Opened, intervals: Intervals):
        self._cluster = cluster
        self._opened = opened
        self._intervals = intervals
        limit_bytes = cluster.config.memory_limit_bytes
        self.shared: Shared | None = None
        if limit_bytes or intervals.interval_s:
            self.shared = Shared(MemoryLimit(limit_bytes) if limit_bytes else None)

    async def create(
        self, topic: str, config: ProducerConfig | None, schema: SchemaInfo | None = None
    ) -> Producer | PartitionedProducer:
        """Create a producer with a schema; raises the same errors as `AsyncClient.create_producer`.

        Cancellation: safe; anything created on the broker is closed.
        """
        config = config or ProducerConfig()
        name = as_topic_name(topic)
        parts = await self._cluster.parts(name)
        is_whole = parts == [name]
        encryption = await _encryption(config)
        is_intercepted = is_whole and bool(config.interceptors)
        producers = self._producers(parts, config, schema, encryption, is_intercepted=is_intercepted)
        if is_whole:
            await self._opened.open_all(producers)
            (producer,) = producers
            if isinstance(producer, InterceptedProducer):
                producer.intercept(config.interceptors)
            return producer
        return await self._partitioned(name, producers, config, schema, encryption)

    async def _partitioned(
        self,
        name: TopicName,
        producers: Sequence[Producer],
        config: ProducerConfig,
        schema: SchemaInfo | None,
        encryption: Encryption | None,
    ) -> PartitionedProducer:
        make = InterceptedPartitionedProducer if config.interceptors else PartitionedProducer
        partitioned = make(name.text, producers, config, self._cluster.rng, self._cluster.clock)
        self._opened.add([partitioned])
        is_lazy = config.lazy_start_partitioned_producers
        try:
            if is_lazy:
                self._opened.add(producers)
                partitioned.be_lazy(Producer.open)
                await partitioned.open_one()
            else:
                await self._opened.open_all(producers)
        except BaseException:
            await partitioned.close()
            raise
        if config.partition_update_s:
            partitioned.keep_updated(
                config.partition_update_s,
                lambda known: self._new_producers(name, known, config, schema, encryption),
                Producer.open if is_lazy else None,
            )
        return partitioned

    def _producers(
        self,
        parts: Sequence[TopicName],
        config: ProducerConfig,
        schema: SchemaInfo | None,
        encryption: Encryption | None,
        *,
        is_intercepted: bool = False,
    ) -> list[Producer]:
        """Return unopened producers of topics."""
        make = _CLASSES[is_intercepted, config.chunking_enabled]
        cluster = self._cluster
        producers = [
            make(
                part,
                next(cluster.producer_ids),
                config,
                cluster.attachment(part, config.guard),
                cluster.clock,
                self.shared,
            )
            for part in parts
        ]
        for producer in producers:
            producer.declare(schema)
            if encryption is not None:
                producer.encrypt(encryption)
            self._intervals.add(producer)
        return producers

    async def _new_producers(
        self,
        name: TopicName,
        known: int,
        config: ProducerConfig,
        schema: SchemaInfo | None,
        encryption: Encryption | None,
    ) -> list[Producer]:
        producers = self._producers((await self._cluster.parts(name))[known:], config, schema, encryption)
        if config.lazy_start_partitioned_producers:
            self._opened.add(producers)
        else:
            await self._opened.open_all(producers)
        return producers


async def _encryption(config: ProducerConfig) -> Encryption | None:
    """Return the encryption shared by a producer's partitions, with its first data key, or None."""
    if config.crypto_key_reader is None:
        return None
    from ..encryption.encryption import Encryption  # loads a library, so only if needed

    encryption = Encryption(
        config.encryption_keys, config.crypto_key_reader, sends_clear=config.crypto_failure_action == "SEND"
    )
    await encryption.open()
    return encryption
