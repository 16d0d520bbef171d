"""The brokers of a cluster as one client reaches them: where topics are, and requests that are tried again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from random import Random
from typing import TypeVar, cast

from ...errors import ClosedError
from ...security.client_credentials import ClientCredentials
from ...tasks import Backoff, Retry
from ...wire import pulsar_api_pb2 as pb
from ...wire.topic_name import TopicName
from ..schemas.schema import SchemaInfo
from .attachment import RETRIED, Attachment
from .config import ClientConfig
from .connection import Connection, Rename
from .introduction import Introduction
from .lookup import Lookup
from .pool import ConnectionPool
from .service_url import Address, parse_service_url
from .topic_watch import TopicWatch

_T = TypeVar("_T")


class Cluster:
    """A cluster, for one client and what it makes.

    Attributes:
        config: settings of the client.
        rng: chance, for waits and generated names.
        clock: wall time in seconds.
        producer_ids: numbers that no other producer of the client has.
        consumer_ids: numbers that no other consumer, watch or lock of the client has.
        credentials: what it shows to servers.
        is_ended: whether nothing new is begun.
    """

    def __init__(
        self,
        service_url: str,
        client_version: str,
        config: ClientConfig,
        rng: Random,
        clock: Callable[[], float],
        rename: Rename | None = None,
    ):
        """Prepare; the first connection is made when it is needed.

        Args:
            service_url: ``pulsar://host:port`` or ``pulsar+ssl://host:port``, several hosts separated by commas.
            client_version: that brokers show.
            config: settings.
            rng: chance.
            clock: wall time in seconds.
            rename: for tests: returns the name of a topic on the broker.
        """
        self.config = config
        self.rng = rng
        self.clock = clock
        self.producer_ids = count()
        self.consumer_ids = count()
        service = parse_service_url(service_url)
        self.credentials = ClientCredentials(config.security, config.authentication)
        introduction = Introduction(client_version, self.credentials, service.is_tls, config.connection_timeout_s)
        self._pool = ConnectionPool(introduction, config, rename)
        self._lookup = Lookup(service, self._pool, config.max_redirects, config.listener_name)
        self.is_ended = False

    # -- topics ---------------------------------------------------------------------------------------------------

    async def parts(self, topic: TopicName) -> list[TopicName]:
        """Return the partitions of a topic, or the topic itself if it has none or is one.

        Cancellation: safe.
        """
        self.check_open()
        if topic.partition >= 0:
            return [topic]
        number = await self.retried(lambda: self._lookup.partitions(topic))
        return [topic.partition_name(index) for index in range(number)] or [topic]

    async def broker_of(self, topic: TopicName) -> Address:
        """Return which broker owns a topic.

        Cancellation: safe.
        """
        self.check_open()
        return await self.retried(lambda: self._lookup.broker_of(topic))

    async def topics(self, namespace: str, mode: pb.CommandGetTopicsOfNamespace.Mode, pattern: str) -> list[str]:
        """Return the full names of a namespace's topics; as `Lookup.topics`."""
        return await self.retried(lambda: self._lookup.topics(namespace, mode, pattern))

    async def schema(self, topic: TopicName, version: bytes | None) -> SchemaInfo:
        """Return the schema of a topic in one version; as `Lookup.schema`."""
        return await self.retried(lambda: self._lookup.schema(topic, version))

    async def create_schema(self, topic: TopicName, schema: pb.Schema) -> bytes:
        """Return the version that a topic has of a schema, which it gets if it has it not yet.

        Cancellation: the topic may have got it.
        """
        part = (await self.parts(topic))[0]  # all of them have the same schemas

        async def create() -> pb.CommandGetOrCreateSchemaResponse:
            command = pb.CommandGetOrCreateSchema(topic=part.text, schema=schema)
            connection = await self.connect(part)
            return cast(
                pb.CommandGetOrCreateSchemaResponse, await connection.request(f"create schema of {part}", command)
            )

        return (await self.retried(create)).schema_version

    # -- connections ----------------------------------------------------------------------------------------------

    async def reach(self, within_s: float) -> None:
        """Connect to the service URL, trying again for ``within_s``.

        Cancellation: safe.

        Raises:
            MagnetarError: no broker answers there, or it refuses the client; as `ConnectionPool.connection`.
        """
        await Retry(RETRIED, self._backoff(), within_s).call(self._lookup.service)

    async def connect(self, topic: TopicName) -> Connection:
        """Return a connection to the broker of a topic; one attempt.

        Cancellation: safe.
        """
        return await self._pool.connection(await self._lookup.broker_of(topic))

    async def retried(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Return what ``ask`` does, asking again until the operation timeout where that can help.

        Cancellation: as ``ask``.
        """
        return await Retry(RETRIED, self._backoff(), self.config.operation_timeout_s).call(ask)

    def attachment(self, topic: TopicName, guard: Callable[[Connection], Awaitable[None]] | None = None) -> Attachment:
        """Return what keeps a producer or consumer attached to the broker of its topic.

        Args:
            topic: of the producer or consumer.
            guard: must have returned before a connection is attached to.
        """

        async def connect(topic: TopicName) -> Connection:
            connection = await self.connect(topic)
            if guard is not None:
                await guard(connection)
            return connection

        return Attachment(topic, connect, self._backoff(), self.config.operation_timeout_s)

    async def offers_topic_watches(self) -> bool:
        """Return whether brokers tell of topics that come and go.

        Cancellation: safe.
        """
        return (await self.retried(self._lookup.service)).offers_topic_watches

    def topic_watch(self, namespace: str, pattern: str, on_change: Callable[[], None]) -> TopicWatch:
        """Return a watch of a namespace's topics, not yet open.

        Args:
            namespace: ``tenant/namespace``.
            pattern: for the broker.
            on_change: called when its topics have changed.
        """

        async def connect(_: TopicName) -> Connection:
            return await self._lookup.service()  # every broker knows of all topics

        tenant, name = namespace.split("/")
        shown = TopicName("persistent", tenant, name, pattern)
        attachment = Attachment(shown, connect, self._backoff(), self.config.operation_timeout_s)
        return TopicWatch(next(self.consumer_ids), namespace, pattern, attachment, on_change)

    def _backoff(self) -> Backoff:
        return Backoff(self.config.backoff_initial_ms / 1000, self.config.backoff_max_ms / 1000, self.rng)

    def random_name(self) -> str:
        """Return a random name: 40 bits in hexadecimal."""
        return f"{self.rng.getrandbits(40):010x}"

    # -- closing --------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise if the client is closed.

        Raises:
            ClosedError: it is.
        """
        if self.is_ended:
            raise ClosedError("the client is closed")

    def end(self) -> None:
        """Begin nothing new; what is there may still use its connections."""
        self.is_ended = True

    async def close(self) -> None:
        """Close all connections, after `end`.

        Cancellation: the sockets close all the same.
        """
        await self._pool.close()
