"""The asyncio client, which creates producers, consumers and readers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload
from weakref import WeakSet

from .. import __version__
from ..errors import ConsumerBusy, TopicNotFound
from ..tasks import Backoff, TaskSet
from ..wire.message_id import EARLIEST, MessageId
from ..wire.topic_name import parse_topic_name
from .checks import as_topic_name, check_config
from .config import ClientConfig, ConsumerConfig, ProducerConfig, ReaderConfig, RegexSubscriptionMode
from .connections.cluster import Cluster
from .connections.connection import Rename
from .connections.opened import Opened
from .connections.service_url import Address
from .consumers.consumer import Consumer
from .consumers.consumer_factory import ConsumerFactory
from .consumers.merged import MergedConsumer
from .consumers.reader import Reader
from .consumers.received import Message
from .consumers.topic_pattern import TopicPattern
from .consumers.tracked import Services
from .lock import WAIT_FIRST_S, WAIT_MAX_S, Lock
from .producers.partitioned import PartitionedProducer
from .producers.producer import Producer
from .producers.producer_factory import ProducerFactory
from .receiving import Deliver, call_listener
from .schemas.schema import Schema, SchemaInfo, check_schema
from .statistics import Intervals
from .table_view import TableView
from .typed.consumer import TypedConsumer, TypedReader
from .typed.producer import TypedProducer
from .typed.writers import WriterSchemas, key_of

if TYPE_CHECKING:
    from .deploy.functions import AsyncFunctions
    from .deploy.rest import RestClient

CLIENT_VERSION = f"Magnetar-Python-v{__version__}"
"""Client version sent to brokers. Must not match the names by which brokers recognise clients that lack commands."""

_T = TypeVar("_T")

Listener = Callable[[Any, Message], Awaitable[object]]
"""Called with a consumer and a message that it received."""


class AsyncClient:
    """A client of a cluster. The client and the objects it creates are bound to the event loop that it was created on.

    Closing the client closes all objects it created.
    """

    def __init__(
        self,
        service_url: str,
        config: ClientConfig | None = None,
        *,
        admin_url: str | None = None,
        rng: Random | None = None,
        clock: Callable[[], float] = time.time,
        rename: Rename | None = None,
    ):
        """Create a client. Connections are opened on demand.

        Args:
            service_url: ``pulsar://host:port``, or ``pulsar+ssl://host:port`` with TLS; several hosts separated by
                commas.
            config: settings.
            admin_url: ``http://host:port`` or ``https://…`` of the REST interface, used by `functions` with the same
                credentials. None means port 8080 for a broker on port 6650, or 8443 with TLS for 6651.
            rng: source of randomness for backoff and generated names.
            clock: wall time in seconds, for publish times.
            rename: for tests: maps a topic name to its name on the broker.

        Raises:
            InvalidConfig: an address is invalid, or the settings contradict it.
        """
        self.service_url = service_url
        self._admin_url = admin_url
        self._rest: RestClient | None = None
        self._functions: AsyncFunctions | None = None
        self._config = config or ClientConfig()
        version = f"{CLIENT_VERSION}-{self._config.description}" if self._config.description else CLIENT_VERSION
        chance = rng or Random()  # noqa: S311 (names and delays)
        self._cluster = Cluster(service_url, version, self._config, chance, clock, rename)
        self._cluster.credentials.check_url(service_url, admin_url)
        self._tasks = TaskSet(f"client of {service_url}")
        self._opened = Opened()
        self._locks: WeakSet[Lock] = WeakSet()
        self._writers = WriterSchemas(self._cluster.schema)
        intervals = Intervals(self._config.stats_interval_s, self._tasks)
        self._producers = ProducerFactory(self._cluster, self._opened, intervals)
        services = Services(
            self._producers.create, self._cluster.random_name, clock, self._schema_version_in, intervals.interval_s > 0
        )
        self._consumers = ConsumerFactory(self._cluster, self._opened, intervals, services, self._writers.forget)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client cannot be pickled: create one in each process")

    # -- functions ------------------------------------------------------------------------------------------------

    @property
    def functions(self) -> AsyncFunctions:
        """The cluster's functions: deploy, inspect and delete them."""
        if self._functions is None:
            from .deploy.functions import AsyncFunctions  # imports httpx and cloudpickle

            self._functions = AsyncFunctions(self._open_rest)
        return self._functions

    def _open_rest(self) -> RestClient:
        """Return the REST client, created on first use."""
        self._cluster.check_open()
        if self._rest is None:
            from .deploy.rest import RestClient, derive_admin_url

            url = self._admin_url or derive_admin_url(self.service_url)
            self._rest = RestClient(url, self._config.connection_timeout_s, self._cluster.credentials)
        return self._rest

    # -- topics ---------------------------------------------------------------------------------------------------

    async def partitions(self, topic: str) -> list[str]:
        """Return the full names of a topic's partitions, or the topic's own full name if it is not partitioned.

        Cancellation: safe.
        """
        return [part.text for part in await self._cluster.parts(as_topic_name(topic))]

    async def topics_of(self, pattern: TopicPattern, mode: RegexSubscriptionMode = "PersistentOnly") -> list[str]:
        """Return the full names of the topics that currently match a pattern; partitions are listed individually.

        Cancellation: safe.
        """
        return await self._consumers.topics_of(pattern, mode)

    async def connect(self, within_s: float = 0.0) -> None:
        """Connect to a broker now instead of at the first operation, to detect connection problems early.

        Cancellation: safe.

        Args:
            within_s: how long to retry, in seconds; 0 makes one attempt.

        Raises:
            ConnectionLost: no broker is reachable.
            ForeignProtocol: the server is not a broker; it may be an HTTP port.
            TlsFailed: a certificate is rejected, or the port does not speak TLS.
            AuthenticationError: the broker rejected the credentials.
        """
        await self._cluster.reach(within_s)

    async def lookup(self, topic: str) -> Address:
        """Return the address of the broker that owns a topic, and the address to connect to.

        Cancellation: safe.
        """
        return await self._cluster.broker_of(as_topic_name(topic))

    async def topic_schema(self, topic: str, version: bytes | None = None) -> SchemaInfo:
        """Return a topic's schema in one version; None for the newest.

        Cancellation: safe.

        Raises:
            TopicNotFound: the topic has no schema of that version.
        """
        self._cluster.check_open()
        return await self._cluster.schema(as_topic_name(topic), version)

    async def register_schema(self, topic: str, schema: Schema[Any]) -> bytes:
        """Register a schema with a topic if it is not registered yet; return its version, which is empty for bytes.

        Cancellation: the schema may have been registered.

        Raises:
            IncompatibleSchema: ``schema`` is incompatible with the topic's schema.
        """
        self._cluster.check_open()
        said = schema.info.to_proto()
        return b"" if said is None else await self._cluster.create_schema(as_topic_name(topic), said)

    @property
    def writer_schemas(self) -> WriterSchemas:
        """The cache of writer schemas."""
        return self._writers

    async def _newest_schema(self, topic: str) -> SchemaInfo | None:
        try:
            return await self.topic_schema(topic)
        except TopicNotFound:
            return None

    async def _schema_version_in(self, message: Message, topic: str) -> bytes:
        """Return a topic's version of a message's schema, registering the schema if necessary."""
        said = (await self._writers.find(key_of(message.topic, message.schema_version))).to_proto()
        return b"" if said is None else await self._cluster.create_schema(as_topic_name(topic), said)

    # -- producers ------------------------------------------------------------------------------------------------

    @overload
    async def create_producer(
        self, topic: str, config: ProducerConfig | None = None
    ) -> Producer | PartitionedProducer: ...

    @overload
    async def create_producer(
        self, topic: str, config: ProducerConfig | None = None, *, schema: Schema[_T]
    ) -> TypedProducer[_T]: ...

    async def create_producer(
        self, topic: str, config: ProducerConfig | None = None, *, schema: Schema[Any] | None = None
    ) -> Producer | PartitionedProducer | TypedProducer[Any]:
        """Create a producer for a topic. With a schema, it sends values instead of bytes.

        Cancellation: safe; anything created on the broker is closed.

        Raises:
            IncompatibleSchema: ``schema`` is incompatible with the topic's schema.
            BrokerError: the broker rejected the request (`ProducerBusy`, `ProducerFenced`, `TopicNotFound`, …).
            ConnectionLost, OperationTimeout: no broker was reached within ``operation_timeout_s``.
        """
        check_config(config, ProducerConfig)
        if schema is None:
            return await self._producers.create(topic, config)
        check_schema(schema)
        if schema.needs_topic:
            schema = schema.for_topic(await self._newest_schema(topic))
        return TypedProducer(await self._producers.create(topic, config, schema.info), schema)

    # -- consumers ------------------------------------------------------------------------------------------------

    @overload
    async def subscribe(
        self,
        topic: str | Sequence[str] | re.Pattern[str] | TopicPattern,
        subscription: str,
        config: ConsumerConfig | None = None,
        *,
        message_listener: Listener | None = None,
    ) -> Consumer | MergedConsumer: ...

    @overload
    async def subscribe(
        self,
        topic: str | Sequence[str] | re.Pattern[str] | TopicPattern,
        subscription: str,
        config: ConsumerConfig | None = None,
        *,
        message_listener: Listener | None = None,
        schema: Schema[_T],
    ) -> TypedConsumer[_T]: ...

    async def subscribe(
        self,
        topic: str | Sequence[str] | re.Pattern[str] | TopicPattern,
        subscription: str,
        config: ConsumerConfig | None = None,
        *,
        message_listener: Listener | None = None,
        schema: Schema[Any] | None = None,
    ) -> Consumer | MergedConsumer | TypedConsumer[Any]:
        """Subscribe to a topic (with all its partitions), to several topics, or to all topics that match a pattern.

        Args:
            topic: a name, several names, or a pattern of whole names such as ``tenant/namespace/orders-.*``, which also
                matches topics created later.
            subscription: subscription name.
            config: settings.
            message_listener: a coroutine function, called with the consumer and each message, one at a time;
                `Consumer.receive` is then unavailable.
            schema: decodes messages, which then have a `value`.

        Cancellation: safe; anything created on the broker is closed.

        Raises:
            IncompatibleSchema: the topic has a schema that ``schema`` cannot read.
            BrokerError: the broker rejected the request (`ConsumerBusy`, `TopicNotFound`, …).
            ConnectionLost, OperationTimeout: no broker was reached within ``operation_timeout_s``.
        """
        if schema is not None:
            check_schema(schema)
        check_config(config, ConsumerConfig)
        info = None if schema is None else schema.info
        try:
            untyped = await self._consumers.subscribe(topic, subscription, config, info)
        except ConsumerBusy as error:
            if "already connected" not in str(error) and "different type" not in str(error):
                raise  # a limit was reached: another subscription type would not help
            raise ConsumerBusy(
                f"{error}: subscription {subscription!r} of {topic} is in use: create all its consumers with"
                " ConsumerConfig(type='Shared'), or choose another subscription"
            ) from error
        consumer = untyped if schema is None else TypedConsumer(untyped, schema, self._writers)
        self.listen(consumer, message_listener and call_listener(message_listener, consumer))
        return consumer

    def listen(
        self, consumer: Consumer | MergedConsumer | Reader | TypedConsumer[Any], deliver: Deliver[Any] | None
    ) -> None:
        """Start passing a consumer's messages to a listener, if any (also called by the blocking client)."""
        if deliver is not None:
            self._tasks.start(consumer.listen(deliver).run(), f"listener of {consumer.topic}")

    @overload
    async def create_reader(self, topic: str, start: MessageId, config: ReaderConfig | None = None) -> Reader: ...

    @overload
    async def create_reader(
        self, topic: str, start: MessageId, config: ReaderConfig | None = None, *, schema: Schema[_T]
    ) -> TypedReader[_T]: ...

    async def create_reader(
        self, topic: str, start: MessageId, config: ReaderConfig | None = None, *, schema: Schema[Any] | None = None
    ) -> Reader | TypedReader[Any]:
        """Create a reader for a non-partitioned topic, or for one partition.

        Args:
            topic: topic name.
            start: EARLIEST, LATEST or a message; reading starts after it, or at it with ``start_inclusive``.
            config: settings. ``start_inclusive`` with LATEST starts at the newest message.
            schema: decodes messages, which then have a `value`.

        Cancellation: safe; anything created on the broker is closed.

        Raises:
            InvalidConfig: the topic is partitioned.
            MagnetarError: see `subscribe`.
        """
        if schema is None:
            return await self._consumers.create_reader(topic, start, config, None)
        check_schema(schema)
        reader = await self._consumers.create_reader(topic, start, config, schema.info)
        return TypedReader(reader, schema, self._writers)

    async def create_table_view(
        self,
        topic: str,
        subscription_name: str | None = None,
        *,
        partition_update_s: float = 60.0,
        schema: Schema[Any] | None = None,
    ) -> TableView:
        """Create a table view of a topic, which contains everything published before the call.

        Args:
            topic: topic name.
            subscription_name: subscription name of the view's readers; None generates random names.
            partition_update_s: interval for discovering new partitions; 0 disables it.
            schema: decodes the values.

        Cancellation: safe; anything created on the broker is closed.

        Raises:
            MagnetarError: see `create_reader`.
        """
        config = ReaderConfig(read_compacted=True, subscription_name=subscription_name)

        async def open_reader(part: str) -> Reader | TypedReader[Any]:
            if schema is None:
                return await self.create_reader(part, EARLIEST, config)
            return await self.create_reader(part, EARLIEST, config, schema=schema)

        view = TableView(as_topic_name(topic).text, lambda: self.partitions(topic), open_reader, partition_update_s)
        self._opened.add([view])
        await view.open()
        return view

    def create_lock(self, topic: str, name: str, owner: str) -> Lock:
        """Create a distributed lock, which is requested from the broker by `Lock.acquire`.

        Args:
            topic: a dedicated topic, which can hold any number of locks.
            name: the lock's name.
            owner: shown in the topic's statistics.
        """
        cluster = self._cluster
        cluster.check_open()
        backoff = Backoff(WAIT_FIRST_S, WAIT_MAX_S, cluster.rng)
        lock = Lock(parse_topic_name(topic), name, owner, next(cluster.consumer_ids), cluster.connect, backoff)
        self._locks.add(lock)
        return lock

    # -- closing --------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close all objects that this client created, then its connections.

        Cancellation: everything is still closed, but without waiting for the broker.
        """
        if self._cluster.is_ended:
            return
        self._cluster.end()
        try:
            await self._tasks.close()
            await self._opened.close()
            await asyncio.gather(*(lock.close() for lock in list(self._locks)), return_exceptions=True)
        finally:
            if self._rest is not None:
                await self._rest.close()
            await self._cluster.close()
