"""The asyncio client: where producers, consumers and readers come from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, NoReturn, TypeVar
from weakref import WeakSet

from .. import __version__
from ..errors import ClosedError, InvalidConfig
from ..tasks import Backoff, Retry
from ..wire.message_id import LATEST, MessageId
from ..wire.topic_name import TopicName, parse_topic_name
from .checks import TEXT_BYTES_MAX, check_text
from .config import ClientConfig, ConsumerConfig, Guard, ProducerConfig, ReaderConfig
from .connections.attachment import RETRIED, Attachment
from .connections.connection import Connection
from .connections.lookup import Lookup
from .connections.pool import ConnectionPool
from .connections.service_url import Address, parse_service_url
from .consumers.consumer import Consumer
from .consumers.merged import MergedConsumer
from .consumers.reader import Reader
from .consumers.start import StartPosition
from .lock import WAIT_FIRST_S, WAIT_MAX_S, Lock
from .producers.partitioned import PartitionedProducer
from .producers.producer import Producer

if TYPE_CHECKING:
    from .deploy.functions import AsyncFunctions
    from .deploy.rest import RestClient

CLIENT_VERSION = f"Magnetar-Python-v{__version__}"
"""How brokers see this client. Not one of the names by which brokers recognise clients that lack commands."""

_T = TypeVar("_T")


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
        self._producer_ids = count()
        self._consumer_ids = count()
        # Weak: what is attached is held by its connection, the rest needs no closing once it is not used any more.
        self._made: WeakSet[Producer | Consumer | MergedConsumer] = WeakSet()
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

    # -- producers ------------------------------------------------------------------------------------------------

    async def create_producer(self, topic: str, config: ProducerConfig | None = None) -> Producer | PartitionedProducer:
        """Return a producer of a topic.

        Cancellation: safe; what was created on the broker is closed.

        Raises:
            BrokerError: the broker refuses (`ProducerBusy`, `ProducerFenced`, `TopicNotFound`, …).
            ConnectionLost, OperationTimeout: no broker was reached within ``operation_timeout_s``.
        """
        config = config or ProducerConfig()
        name = _name(topic)
        parts = await self._parts(name)
        producers = [
            Producer(part, next(self._producer_ids), config, self._attachment(part, config.guard), self._clock)
            for part in parts
        ]
        await self._open_all(producers)
        if parts == [name]:
            return producers[0]
        return PartitionedProducer(name.text, producers, config, self._rng)

    # -- consumers ------------------------------------------------------------------------------------------------

    async def subscribe(
        self, topic: str | Sequence[str], subscription: str, config: ConsumerConfig | None = None
    ) -> Consumer | MergedConsumer:
        """Return a consumer of a topic, of all partitions of one, or of several topics.

        Cancellation: safe; what was created on the broker is closed.

        Raises:
            BrokerError: the broker refuses (`ConsumerBusy`, `TopicNotFound`, …).
            ConnectionLost, OperationTimeout: no broker was reached within ``operation_timeout_s``.
        """
        check_text("subscription", subscription, TEXT_BYTES_MAX)
        if not subscription:
            raise InvalidConfig("subscription='' is empty; give it a name")
        config = config or ConsumerConfig()
        if config.name is None:
            config = replace(config, name=self._random_name())
        topics = [topic] if isinstance(topic, str) else list(topic)
        names = list(dict.fromkeys(map(_name, topics)))
        if not names:
            raise InvalidConfig("subscribe needs at least one topic")
        parts = [part for name in names for part in await self._parts(name)]
        if parts == names and len(parts) == 1:
            (consumer,) = await self._consumers(parts, subscription, config, 1)
            return consumer
        consumers = await self._consumers(parts, subscription, config, len(parts))
        merged = MergedConsumer(",".join(name.text for name in names), subscription, consumers)
        self._made.add(merged)
        partitioned = [name for name in names if name not in parts]
        if config.partition_update_s and partitioned:
            merged.keep_updated(
                config.partition_update_s, lambda known: self._new_partitions(partitioned, known, subscription, config)
            )
        return merged

    async def _consumers(
        self, parts: Sequence[TopicName], subscription: str, config: ConsumerConfig, siblings: int
    ) -> list[Consumer]:
        """Return subscribed consumers of topics, ``siblings`` of which share the limit of queued messages."""
        if siblings > 1:
            share = max(1, config.max_receiver_queue_size_across_partitions // siblings)
            config = replace(
                config,
                receiver_queue_size=min(config.receiver_queue_size, share),
                receiver_queue_bytes=-(-config.receiver_queue_bytes // siblings),
            )
        consumers = [
            Consumer(part, subscription, next(self._consumer_ids), config, self._attachment(part, config.guard))
            for part in parts
        ]
        await self._open_all(consumers)
        return consumers

    async def _new_partitions(
        self, names: Sequence[TopicName], known: set[str], subscription: str, config: ConsumerConfig
    ) -> list[Consumer]:
        parts = [part for name in names for part in await self._parts(name)]
        new = [part for part in parts if part.text not in known]
        return await self._consumers(new, subscription, config, len(parts)) if new else []

    async def create_reader(self, topic: str, start: MessageId, config: ReaderConfig | None = None) -> Reader:
        """Return a reader of a topic without partitions, or of one partition.

        Args:
            topic: name.
            start: EARLIEST, LATEST or a message; reading begins after it, or with it if ``start_inclusive``.
            config: settings. ``start_inclusive`` with LATEST begins with the newest message.

        Cancellation: safe; what was created on the broker is closed.

        Raises:
            InvalidConfig: the topic is partitioned.
            MagnetarError: as `subscribe`.
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
        subscription = f"{prefix}reader-{self._random_name()}"
        consumer = Consumer(
            name, subscription, next(self._consumer_ids), consumer_config, self._attachment(name), begin
        )
        await self._open_all([consumer])
        reader = Reader(consumer, begin)
        if start == LATEST and config.start_inclusive:
            last = await reader.last_message_id()
            if last.entry_id >= 0:
                await reader.seek(last, inclusive=True)
        return reader

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
        try:
            results = await asyncio.gather(*(part.open() for part in parts), return_exceptions=True)
            errors = [result for result in results if isinstance(result, BaseException)]
            if errors:
                raise errors[0]
        except BaseException:
            await asyncio.gather(*(part.close() for part in parts), return_exceptions=True)
            raise

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
