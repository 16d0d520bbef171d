"""A client's view of a cluster: topic lookups, and requests with retries."""

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
    """The cluster as used by one client and the objects that it creates.

    Attributes:
        config: the client's settings.
        rng: source of randomness for backoff and generated names.
        clock: wall time in seconds.
        producer_ids: generates producer ids, unique in the client.
        consumer_ids: generates ids for consumers, watches and locks, unique in the client.
        credentials: the client's credentials.
        is_ended: whether new operations are rejected.
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
        """Create a cluster. Connections are opened on demand.

        Args:
            service_url: ``pulsar://host:port`` or ``pulsar+ssl://host:port``, several hosts separated by commas.
            client_version: version string, shown by brokers.
            config: settings.
            rng: source of randomness.
            clock: wall time in seconds.
            rename: for tests: maps a topic name to its name on the broker.
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
        """Return a topic's partitions, or the topic itself if it has none or is a partition.

        Cancellation: safe.
        """
        self.check_open()
        if topic.partition >= 0:
            return [topic]
        number = await self.retried(lambda: self._lookup.partitions(topic))
        return [topic.partition_name(index) for index in range(number)] or [topic]

    async def broker_of(self, topic: TopicName) -> Address:
        """Return the address of the broker that owns a topic.

        Cancellation: safe.
        """
        self.check_open()
        return await self.retried(lambda: self._lookup.broker_of(topic))

    async def topics(self, namespace: str, mode: pb.CommandGetTopicsOfNamespace.Mode, pattern: str) -> list[str]:
        """Return the full names of a namespace's topics; see `Lookup.topics`."""
        return await self.retried(lambda: self._lookup.topics(namespace, mode, pattern))

    async def schema(self, topic: TopicName, version: bytes | None) -> SchemaInfo:
        """Return a topic's schema in one version; see `Lookup.schema`."""
        return await self.retried(lambda: self._lookup.schema(topic, version))

    async def create_schema(self, topic: TopicName, schema: pb.Schema) -> bytes:
        """Register a schema with a topic if it is not registered yet; return its version.

        Cancellation: the schema may have been registered.
        """
        part = (await self.parts(topic))[0]  # all partitions share the schemas

        async def create() -> pb.CommandGetOrCreateSchemaResponse:
            command = pb.CommandGetOrCreateSchema(topic=part.text, schema=schema)
            connection = await self.connect(part)
            return cast(
                pb.CommandGetOrCreateSchemaResponse, await connection.request(f"create schema of {part}", command)
            )

        return (await self.retried(create)).schema_version

    # -- connections ----------------------------------------------------------------------------------------------

    async def reach(self, within_s: float) -> None:
        """Connect to the service URL, retrying for ``within_s`` seconds.

        Cancellation: safe.

        Raises:
            MagnetarError: no broker is reachable, or the broker rejected the client; see `ConnectionPool.connection`.
        """
        await Retry(RETRIED, self._backoff(), within_s).call(self._lookup.service)

    async def connect(self, topic: TopicName) -> Connection:
        """Return a connection to a topic's broker; makes one attempt.

        Cancellation: safe.
        """
        return await self._pool.connection(await self._lookup.broker_of(topic))

    async def retried(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Return the result of ``ask``, retrying retryable errors until the operation timeout.

        Cancellation: same as for ``ask``.
        """
        return await Retry(RETRIED, self._backoff(), self.config.operation_timeout_s).call(ask)

    def attachment(self, topic: TopicName, guard: Callable[[Connection], Awaitable[None]] | None = None) -> Attachment:
        """Return an attachment, which keeps a producer or consumer attached to its topic's broker.

        Args:
            topic: topic of the producer or consumer.
            guard: awaited with a connection before attaching to it.
        """

        async def connect(topic: TopicName) -> Connection:
            connection = await self.connect(topic)
            if guard is not None:
                await guard(connection)
            return connection

        return Attachment(topic, connect, self._backoff(), self.config.operation_timeout_s)

    async def offers_topic_watches(self) -> bool:
        """Return whether the brokers support topic watches.

        Cancellation: safe.
        """
        return (await self.retried(self._lookup.service)).offers_topic_watches

    def topic_watch(self, namespace: str, pattern: str, on_change: Callable[[], None]) -> TopicWatch:
        """Return a watch of a namespace's topics, not yet open.

        Args:
            namespace: ``tenant/namespace``.
            pattern: the pattern to send to the broker.
            on_change: called when the topics have changed.
        """

        async def connect(_: TopicName) -> Connection:
            return await self._lookup.service()  # every broker knows all topics

        tenant, name = namespace.split("/")
        shown = TopicName("persistent", tenant, name, pattern)
        attachment = Attachment(shown, connect, self._backoff(), self.config.operation_timeout_s)
        return TopicWatch(next(self.consumer_ids), namespace, pattern, attachment, on_change)

    def _backoff(self) -> Backoff:
        return Backoff(self.config.backoff_initial_ms / 1000, self.config.backoff_max_ms / 1000, self.rng)

    def random_name(self) -> str:
        """Return a random name of 40 bits in hexadecimal."""
        return f"{self.rng.getrandbits(40):010x}"

    # -- closing --------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise ClosedError if the client is closed.

        Raises:
            ClosedError: the client is closed.
        """
        if self.is_ended:
            raise ClosedError("the client is closed")

    def end(self) -> None:
        """Reject new operations; existing objects may still use their connections."""
        self.is_ended = True

    async def close(self) -> None:
        """Close all connections, after `end`.

        Cancellation: the sockets are closed nevertheless.
        """
        await self._pool.close()
