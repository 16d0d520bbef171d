"""The asyncio client: where producers, consumers and readers come from."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast, overload
from weakref import WeakSet

from .. import __version__
from ..errors import ClosedError, InvalidConfig, TopicNotFound
from ..tasks import Backoff, Retry, TaskSet
from ..wire import pulsar_api_pb2 as pb
from ..wire.message_id import EARLIEST, LATEST, MessageId
from ..wire.topic_name import TopicName, parse_topic_name
from .checks import TEXT_BYTES_MAX, check_text
from .config import ClientConfig, ConsumerConfig, Guard, ProducerConfig, ReaderConfig
from .connections.attachment import RETRIED, Attachment
from .connections.connection import Connection
from .connections.lookup import Lookup
from .connections.pool import ConnectionPool
from .connections.service_url import Address, parse_service_url
from .connections.topic_watch import TopicWatch
from .consumers.consumer import Consumer
from .consumers.letters import with_retry_topics
from .consumers.merged import MergedConsumer
from .consumers.observed import ObservedConsumer, make_consumer
from .consumers.pattern import PatternConsumer
from .consumers.reader import Reader
from .consumers.received import Message
from .consumers.start import StartPosition
from .consumers.topic_pattern import TopicPattern
from .consumers.tracked import Services
from .lock import WAIT_FIRST_S, WAIT_MAX_S, Lock
from .producers.chunking import ChunkingProducer, InterceptedChunkingProducer
from .producers.intercepted import InterceptedPartitionedProducer, InterceptedProducer
from .producers.memory import MemoryLimit
from .producers.observed_queue import Shared
from .producers.partitioned import PartitionedProducer
from .producers.producer import Producer
from .receiving import Deliver, call_listener
from .schemas.schema import Schema, SchemaInfo, check_schema
from .table_view import TableView
from .typed.consumer import TypedConsumer, TypedReader
from .typed.producer import TypedProducer
from .typed.writers import WriterSchemas, key_of

if TYPE_CHECKING:
    from .deploy.functions import AsyncFunctions
    from .deploy.rest import RestClient

CLIENT_VERSION = f"Magnetar-Python-v{__version__}"
"""How brokers see this client. Not one of the names by which brokers recognise clients that lack commands."""

_T = TypeVar("_T")

Listener = Callable[[Any, Message], Awaitable[object]]
"""Is given a consumer and a message of it."""

log = logging.getLogger(__name__)

_MODES = {
    "PersistentOnly": pb.CommandGetTopicsOfNamespace.PERSISTENT,
    "NonPersistentOnly": pb.CommandGetTopicsOfNamespace.NON_PERSISTENT,
    "AllTopics": pb.CommandGetTopicsOfNamespace.ALL,
}
"""Which topics a pattern is of: as settings say it, and as brokers are asked."""

_PRODUCERS: dict[tuple[bool, bool], type[Producer]] = {
    (False, False): Producer,
    (True, False): InterceptedProducer,
    (False, True): ChunkingProducer,
    (True, True): InterceptedChunkingProducer,
}
"""By whether there are interceptors, and whether large messages go in chunks."""


class AsyncClient:
    """A client of a cluster. It belongs to the event loop on which it is made; so does all that it makes.

    Closing the client closes everything that it made.
    """

    def __init__(
        self,
        service_url: str,
        config: ClientConfig | None = None,
        *,
        admin_url: str | None = None,
        rng: Random | None = None,
        clock: Callable[[], float] = time.time,
    ):
        """Prepare a client; the first connection is made when it is needed.

        Args:
            service_url: ``pulsar://host:port``, several hosts separated by commas.
            config: settings.
            admin_url: ``http://host:port`` of the REST interface, for `functions`; None: port 8080 beside a broker on
                port 6650.
            rng: chance, for waits and generated names.
            clock: wall time in seconds, for publish times.
        """
        self.service_url = service_url
        self._admin_url = admin_url
        self._rest: RestClient | None = None
        self._functions: AsyncFunctions | None = None
        self._config = config or ClientConfig()
        self._rng = rng or Random()
        self._clock = clock
        version = f"{CLIENT_VERSION}-{self._config.description}" if self._config.description else CLIENT_VERSION
        self._pool = ConnectionPool(version, self._config)
        self._lookup = Lookup(parse_service_url(service_url), self._pool, self._config.max_redirects)
        self._writers = WriterSchemas(self._schema)
        self._producer_ids = count()
        self._consumer_ids = count()
        # Weak: what is attached is held by its connection, the rest needs no closing once it is not used any more.
        self._made: WeakSet[Producer | PartitionedProducer | Consumer | MergedConsumer | TableView] = WeakSet()
        self._shared: Shared | None = None
        self._tasks = TaskSet(f"client of {service_url}")
        self._statistics: asyncio.Task[None] | None = None
        self._locks: WeakSet[Lock] = WeakSet()
        self._is_closed = False

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client stays with its event loop and its connections")

    # -- functions ------------------------------------------------------------------------------------------------

    @property
    def functions(self) -> AsyncFunctions:
        """The cluster's functions: deploy them from here, ask for them, remove them."""
        if self._functions is None:
            from .deploy.functions import AsyncFunctions  # with it come httpx and cloudpickle

            self._functions = AsyncFunctions(self._open_rest)
        return self._functions

    def _open_rest(self) -> RestClient:
        """Return the connection to the REST interface, made at its first use."""
        self._check_open()
        if self._rest is None:
            from .deploy.rest import RestClient, derive_admin_url

            url = self._admin_url or derive_admin_url(self.service_url)
            self._rest = RestClient(url, self._config.connection_timeout_s)
        return self._rest

    # -- topics ---------------------------------------------------------------------------------------------------

    async def partitions(self, topic: str) -> list[str]:
        """Return the full names of a topic's partitions, or of the topic itself if it has none.

        Cancellation: safe.
        """
        name = _name(topic)
        return [part.text for part in await self._parts(name)]

    async def lookup(self, topic: str) -> Address:
        """Return which broker owns a topic and where to connect for it.

        Cancellation: safe.
        """
        self._check_open()
        name = _name(topic)
        return await self._retried(lambda: self._lookup.broker_of(name))

    async def _parts(self, name: TopicName) -> list[TopicName]:
        self._check_open()
        if name.partition >= 0:
            return [name]
        number = await self._retried(lambda: self._lookup.partitions(name))
        return [name.partition_name(index) for index in range(number)] or [name]

    async def _retried(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        return await Retry(RETRIED, self._backoff(), self._config.operation_timeout_s).call(ask)

    async def _connect(self, topic: TopicName) -> Connection:
        return await self._pool.connection(await self._lookup.broker_of(topic))

    def _attachment(self, topic: TopicName, guard: Guard | None = None) -> Attachment:
        async def connect(topic: TopicName) -> Connection:
            connection = await self._connect(topic)
            if guard is not None:
                await guard(connection)
            return connection

        return Attachment(topic, connect, self._backoff(), self._config.operation_timeout_s)

    def _backoff(self) -> Backoff:
        config = self._config
        return Backoff(config.backoff_initial_ms / 1000, config.backoff_max_ms / 1000, self._rng)

    async def topic_schema(self, topic: str, version: bytes | None = None) -> SchemaInfo:
        """Return the schema of a topic in one version; None for its newest.

        Cancellation: safe.

        Raises:
            TopicNotFound: it has no schema of that version.
        """
        self._check_open()
        name = _name(topic)
        return await self._schema(name, version)

    async def _schema(self, name: TopicName, version: bytes | None) -> SchemaInfo:
        return await self._retried(lambda: self._lookup.schema(name, version))

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
        """Return a producer of a topic; with a schema one that sends values.

        Cancellation: safe; what was created on the broker is closed.

        Raises:
            IncompatibleSchema: the topic has another schema, and ``schema`` is not compatible with it.
            BrokerError: the broker refuses (`ProducerBusy`, `ProducerFenced`, `TopicNotFound`, …).
            ConnectionLost, OperationTimeout: no broker was reached within ``operation_timeout_s``.
        """
        if schema is None:
            return await self._create_producer(topic, config, None)
        check_schema(schema)
        if schema.needs_topic:
            schema = schema.for_topic(await self._newest_schema(topic))
        return TypedProducer(await self._create_producer(topic, config, schema.info), schema)

    async def _schema_version_in(self, message: Message, topic: str) -> bytes:
        """Return what a topic calls the schema of a message; it gets it if it has it not yet."""
        schema = await self._writers.find(key_of(message.topic, message.schema_version))
        said = schema.to_proto()
        if said is None:
            return b""
        part = (await self._parts(_name(topic)))[0]  # all of them have the same schemas

        async def create() -> pb.CommandGetOrCreateSchemaResponse:
            command = pb.CommandGetOrCreateSchema(topic=part.text, schema=said)
            connection = await self._connect(part)
            return cast(
                pb.CommandGetOrCreateSchemaResponse, await connection.request(f"create schema of {part}", command)
            )

        return (await self._retried(create)).schema_version

    async def _newest_schema(self, topic: str) -> SchemaInfo | None:
        try:
            return await self.topic_schema(topic)
        except TopicNotFound:
            return None

    async def _create_producer(
        self, topic: str, config: ProducerConfig | None, schema: SchemaInfo | None
    ) -> Producer | PartitionedProducer:
        """Return a producer of a topic whose messages have that schema.

        Cancellation: safe; what was created on the broker is closed.
        """
        config = config or ProducerConfig()
        name = _name(topic)
        parts = await self._parts(name)
        is_whole = parts == [name]
        producers = self._producers(parts, config, schema, is_intercepted=is_whole and bool(config.interceptors))
        if is_whole:
            await self._open_all(producers)
            (producer,) = producers
            if isinstance(producer, InterceptedProducer):
                producer.intercept(config.interceptors)
            return producer
        make = InterceptedPartitionedProducer if config.interceptors else PartitionedProducer
        partitioned = make(name.text, producers, config, self._rng)
        self._made.add(partitioned)
        is_lazy = config.lazy_start_partitioned_producers
        try:
            if is_lazy:
                self._made.update(producers)
                partitioned.be_lazy(Producer.open)
                await partitioned.open_one()
            else:
                await self._open_all(producers)
        except BaseException:
            await partitioned.close()
            raise
        if config.partition_update_s:
            partitioned.keep_updated(
                config.partition_update_s,
                lambda known: self._new_producers(name, known, config, schema),
                Producer.open if is_lazy else None,
            )
        return partitioned

    def _producers(
        self,
        parts: Sequence[TopicName],
        config: ProducerConfig,
        schema: SchemaInfo | None,
        *,
        is_intercepted: bool = False,
    ) -> list[Producer]:
        """Return producers of topics, not yet open."""
        make = _PRODUCERS[is_intercepted, config.chunking_enabled]
        limit_bytes = self._config.memory_limit_bytes
        if self._shared is None and (limit_bytes or self._counts()):
            self._shared = Shared(MemoryLimit(limit_bytes) if limit_bytes else None)
        producers = [
            make(
                part, next(self._producer_ids), config, self._attachment(part, config.guard), self._clock, self._shared
            )
            for part in parts
        ]
        for producer in producers:
            producer.declare(schema)
        return producers

    async def _new_producers(
        self, name: TopicName, known: int, config: ProducerConfig, schema: SchemaInfo | None
    ) -> list[Producer]:
        producers = self._producers((await self._parts(name))[known:], config, schema)
        if config.lazy_start_partitioned_producers:
            self._made.update(producers)
        else:
            await self._open_all(producers)
        return producers

    # -- consumers ------------------------------------------------------------------------------------------------

    @overload
    async def subscribe(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        subscription: str,
        config: ConsumerConfig | None = None,
        *,
        message_listener: Listener | None = None,
    ) -> Consumer | MergedConsumer: ...

    @overload
    async def subscribe(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        subscription: str,
        config: ConsumerConfig | None = None,
        *,
        message_listener: Listener | None = None,
        schema: Schema[_T],
    ) -> TypedConsumer[_T]: ...

    async def subscribe(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        subscription: str,
        config: ConsumerConfig | None = None,
        *,
        message_listener: Listener | None = None,
        schema: Schema[Any] | None = None,
    ) -> Consumer | MergedConsumer | TypedConsumer[Any]:
        """Return a consumer of a topic, of all partitions of one, of several topics, or of those that a pattern takes.

        Args:
            topic: name, or several, or a pattern of whole names such as ``tenant/namespace/orders-.*``, which takes
                topics that come later, too.
            subscription: name.
            config: settings.
            message_listener: a coroutine function that is given the consumer and each message, one after the other;
                `Consumer.receive` is not for use then.
            schema: decodes messages, which have a `value` then.

        Cancellation: safe; what was created on the broker is closed.

        Raises:
            IncompatibleSchema: the topic has a schema that ``schema`` cannot read.
            BrokerError: the broker refuses (`ConsumerBusy`, `TopicNotFound`, …).
            ConnectionLost, OperationTimeout: no broker was reached within ``operation_timeout_s``.
        """
        if schema is not None:
            check_schema(schema)
        untyped = await self._subscribe(topic, subscription, config, None if schema is None else schema.info)
        consumer = untyped if schema is None else TypedConsumer(untyped, schema, self._writers)
        self.listen(consumer, message_listener and call_listener(message_listener, consumer))
        return consumer

    async def _subscribe(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        subscription: str,
        config: ConsumerConfig | None,
        schema: SchemaInfo | None,
    ) -> Consumer | MergedConsumer:
        """Return a consumer whose messages have that schema.

        Cancellation: safe; what was created on the broker is closed.
        """
        check_text("subscription", subscription, TEXT_BYTES_MAX)
        if not subscription:
            raise InvalidConfig("subscription='' is empty; give it a name")
        config = config or ConsumerConfig()
        if config.name is None:
            config = replace(config, name=self._random_name())
        if isinstance(topic, re.Pattern):
            return await self._subscribe_pattern(TopicPattern(topic), subscription, config, schema)
        topics = [topic] if isinstance(topic, str) else list(topic)
        names = list(dict.fromkeys(map(_name, topics)))
        if not names:
            raise InvalidConfig("subscribe needs at least one topic")
        if config.retry_enable:
            policy = with_retry_topics(config.dead_letter_policy, names[0].text, subscription)
            config = replace(config, dead_letter_policy=policy)
            names = list(dict.fromkeys([*names, _name(policy.retry_letter_topic or "")]))
        parts = [part for name in names for part in await self._parts(name)]
        if parts == names and len(parts) == 1:
            (consumer,) = await self._consumers(parts, subscription, config, 1, schema)
            return consumer
        consumers = await self._consumers(parts, subscription, config, len(parts), schema)
        merged = MergedConsumer(",".join(name.text for name in names), subscription, consumers)
        self._made.add(merged)
        partitioned = [name for name in names if name not in parts]
        if config.partition_update_s and partitioned:
            merged.keep_updated(
                config.partition_update_s,
                lambda known: self._new_partitions(partitioned, known, subscription, config, schema),
            )
        return merged

    async def _subscribe_pattern(
        self, pattern: TopicPattern, subscription: str, config: ConsumerConfig, schema: SchemaInfo | None
    ) -> PatternConsumer:
        if config.retry_enable:
            raise InvalidConfig("retry_enable needs topics by name, whose retry letter topic it consumes; list them")
        self._check_open()
        mode = _MODES[config.regex_subscription_mode]

        async def list_topics() -> list[str]:
            return await self._retried(lambda: self._lookup.topics(pattern.namespace, mode, pattern.asked or ""))

        async def subscribe_to(topic: str) -> Consumer:
            siblings = len(consumer.consumers) + 1
            (made,) = await self._consumers(
                [_name(topic)], subscription, config, siblings, schema, creates_topics=False
            )
            return made

        async def subscribe_to_all() -> list[Consumer]:
            found = [_name(topic) for topic in await list_topics() if pattern.takes(topic)]
            return await self._consumers(found, subscription, config, len(found), schema, creates_topics=False)

        can_be_watched = pattern.asked is not None and config.regex_subscription_mode == "PersistentOnly"
        is_watched = can_be_watched and (await self._retried(self._lookup.service)).offers_topic_watches
        try:
            consumers = await subscribe_to_all()
        except TopicNotFound:  # one of them was deleted meanwhile
            consumers = await subscribe_to_all()
        consumer = PatternConsumer(pattern, subscription, consumers, subscribe_to)
        self._made.add(consumer)
        watch = self._topic_watch(pattern, consumer.topics_changed) if is_watched else None
        consumer.keep_matching(config.pattern_update_s, list_topics, watch)
        return consumer

    def _topic_watch(self, pattern: TopicPattern, on_change: Callable[[], None]) -> TopicWatch:
        async def connect(_: TopicName) -> Connection:
            return await self._lookup.service()  # every broker knows of all topics

        tenant, namespace = pattern.namespace.split("/")
        shown = TopicName("persistent", tenant, namespace, pattern.asked or "")
        attachment = Attachment(shown, connect, self._backoff(), self._config.operation_timeout_s)
        return TopicWatch(next(self._consumer_ids), pattern.namespace, pattern.asked or "", attachment, on_change)

    def listen(
        self, consumer: Consumer | MergedConsumer | Reader | TypedConsumer[Any], deliver: Deliver[Any] | None
    ) -> None:
        """Give the messages of a consumer to a listener, if there is one (called by the blocking client, too)."""
        if deliver is not None:
            self._tasks.start(consumer.listen(deliver).run(), f"listener of {consumer.topic}")

    async def _consumers(
        self,
        parts: Sequence[TopicName],
        subscription: str,
        config: ConsumerConfig,
        siblings: int,
        schema: SchemaInfo | None,
        *,
        creates_topics: bool = True,
    ) -> list[Consumer]:
        """Return subscribed consumers of topics, ``siblings`` of which share the limit of queued messages."""
        if siblings > 1:
            share = max(1, config.max_receiver_queue_size_across_partitions // siblings)
            config = replace(
                config,
                receiver_queue_size=min(config.receiver_queue_size, share),
                receiver_queue_bytes=-(-config.receiver_queue_bytes // siblings),
            )
        services = Services(
            self.create_producer, self._random_name, self._clock, self._schema_version_in, self._counts()
        )
        consumers = [
            make_consumer(
                part, subscription, next(self._consumer_ids), config, self._attachment(part, config.guard), services
            )
            for part in parts
        ]
        for consumer in consumers:
            consumer.creates_topic = creates_topics
            consumer.declare(schema, partial(self._writers.forget, consumer.topic))
        await self._open_all(consumers)
        return consumers

    async def _new_partitions(
        self,
        names: Sequence[TopicName],
        known: set[str],
        subscription: str,
        config: ConsumerConfig,
        schema: SchemaInfo | None,
    ) -> list[Consumer]:
        parts = [part for name in names for part in await self._parts(name)]
        new = [part for part in parts if part.text not in known]
        return await self._consumers(new, subscription, config, len(parts), schema) if new else []

    @overload
    async def create_reader(self, topic: str, start: MessageId, config: ReaderConfig | None = None) -> Reader: ...

    @overload
    async def create_reader(
        self, topic: str, start: MessageId, config: ReaderConfig | None = None, *, schema: Schema[_T]
    ) -> TypedReader[_T]: ...

    async def create_reader(
        self, topic: str, start: MessageId, config: ReaderConfig | None = None, *, schema: Schema[Any] | None = None
    ) -> Reader | TypedReader[Any]:
        """Return a reader of a topic without partitions, or of one partition.

        Args:
            topic: name.
            start: EARLIEST, LATEST or a message; reading begins after it, or with it if ``start_inclusive``.
            config: settings. ``start_inclusive`` with LATEST begins with the newest message.
            schema: decodes messages, which have a `value` then.

        Cancellation: safe; what was created on the broker is closed.

        Raises:
            InvalidConfig: the topic is partitioned.
            MagnetarError: as `subscribe`.
        """
        if schema is None:
            return await self._create_reader(topic, start, config, None)
        check_schema(schema)
        return TypedReader(await self._create_reader(topic, start, config, schema.info), schema, self._writers)

    async def _create_reader(
        self, topic: str, start: MessageId, config: ReaderConfig | None, schema: SchemaInfo | None
    ) -> Reader:
        """Return a reader of messages with that schema.

        Cancellation: safe; what was created on the broker is closed.
        """
        config = config or ReaderConfig()
        name = _name(topic)
        parts = await self._parts(name)
        if parts != [name]:
            raise InvalidConfig(f"{name} has {len(parts)} partitions; read one of them, for example {parts[0]}")
        prefix = f"{config.subscription_prefix}-" if config.subscription_prefix else ""
        consumer_config = ConsumerConfig(
            name=config.name or self._random_name(),
            receiver_queue_size=config.receiver_queue_size,
            read_compacted=config.read_compacted,
            properties=config.properties,
        )
        begin = StartPosition(start, config.start_inclusive)
        subscription = config.subscription_name or f"{prefix}reader-{self._random_name()}"
        consumer = Consumer(
            name, subscription, next(self._consumer_ids), consumer_config, self._attachment(name), begin
        )
        consumer.declare(schema, partial(self._writers.forget, consumer.topic))
        await self._open_all([consumer])
        reader = Reader(consumer, begin)
        if start == LATEST and config.start_inclusive:
            last = await reader.last_message_id()
            if last.entry_id >= 0:
                await reader.seek(last, inclusive=True)
        return reader

    async def create_table_view(
        self,
        topic: str,
        subscription_name: str | None = None,
        *,
        partition_update_s: float = 60.0,
        schema: Schema[Any] | None = None,
    ) -> TableView:
        """Return a view of a topic as a table, with everything that was published before.

        Args:
            topic: name.
            subscription_name: of the view's readers; None takes random ones.
            partition_update_s: how often new partitions of the topic are looked for; 0 never does.
            schema: decodes the values.

        Cancellation: safe; what was created on the broker is closed.

        Raises:
            MagnetarError: as `create_reader`.
        """
        config = ReaderConfig(read_compacted=True, subscription_name=subscription_name)

        async def open_reader(part: str) -> Reader | TypedReader[Any]:
            if schema is None:
                return await self.create_reader(part, EARLIEST, config)
            return await self.create_reader(part, EARLIEST, config, schema=schema)

        view = TableView(_name(topic).text, lambda: self.partitions(topic), open_reader, partition_update_s)
        self._made.add(view)
        await view.open()
        return view

    def create_lock(self, topic: str, name: str, owner: str) -> Lock:
        """Return a lock that the broker keeps; nothing is asked for before `Lock.acquire`.

        Args:
            topic: keeps the locks and nothing else; any number of them.
            name: what is locked.
            owner: shown in the topic's statistics.
        """
        self._check_open()
        backoff = Backoff(WAIT_FIRST_S, WAIT_MAX_S, self._rng)
        lock = Lock(parse_topic_name(topic), name, owner, next(self._consumer_ids), self._connect, backoff)
        self._locks.add(lock)
        return lock

    async def _open_all(self, parts: Sequence[Producer] | Sequence[Consumer]) -> None:
        """Open all producers or consumers of a topic, or none: if one is refused, those that succeeded are closed."""
        self._made.update(parts)
        for part in parts:
            if isinstance(part, Consumer):
                part.clock = self._clock
        try:
            results = await asyncio.gather(*(part.open() for part in parts), return_exceptions=True)
            errors = [result for result in results if isinstance(result, BaseException)]
            if errors:
                raise errors[0]
        except BaseException:
            await asyncio.gather(*(part.close() for part in parts), return_exceptions=True)
            raise

    def _counts(self) -> bool:
        """Return whether producers and consumers count; if so, see that intervals end."""
        interval_s = self._config.stats_interval_s
        if interval_s and self._statistics is None:
            self._statistics = self._tasks.keep(
                lambda: self._end_intervals(interval_s), "statistics", longest_pause_s=interval_s
            )
        return interval_s > 0

    async def _end_intervals(self, interval_s: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            await asyncio.sleep(interval_s)
            for one in list(self._made):
                if isinstance(one, ObservedConsumer | Producer) and (counts := one.counts) is not None:
                    counts.end_interval(loop.time() - began_s)
                    log.info("%r: %r", one, one.statistics())

    def _random_name(self) -> str:
        return f"{self._rng.getrandbits(40):010x}"

    # -- closing --------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the client is closed")

    async def close(self) -> None:
        """Close everything that this client made, then its connections.

        Cancellation: everything is closed all the same, without waiting for the broker.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._tasks.close()
            await asyncio.gather(*(one.close() for one in list(self._made)), return_exceptions=True)
            await asyncio.gather(*(lock.close() for lock in list(self._locks)), return_exceptions=True)
        finally:
            if self._rest is not None:
                await self._rest.close()
            await self._pool.close()


def _name(topic: str) -> TopicName:
    """Return the name of a topic; refuse what the protocol cannot carry."""
    check_text("topic", topic)
    return parse_topic_name(topic)
