"""The broker, which listens for clients, manages all topics and runs background tasks.

Source: Pulsar binary protocol, sections Topic names and Producer (automatic creation).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ..errors import NotAllowed, ServiceNotReady, TopicNotFound
from ..security.authentication.opening import open_authenticator
from ..tasks import FairLock, TaskSet, within
from ..wire.topic_name import TopicName
from .advertised import Advertised
from .config import MIB, BrokerConfig
from .dispatch.delivery_memory import DeliveryMemory
from .listeners import OWN_LISTENER, url_host
from .policies.authorization import Authorization
from .policies.rate_limit import SharedRates
from .schemas.registry import SchemaRegistry
from .session.connection import Connection
from .session.frame_memory import FrameMemory
from .session.places import ConnectionPlaces
from .session.turns import Turns
from .topics.backlog_quotas import enforce_all
from .topics.deduplication import DEDUPLICATION_CURSOR, Status
from .topics.inactivity import Inactivity
from .topics.incarnations import TopicIncarnations
from .topics.limits import TOO_MANY_TOPICS, connection_refusal, is_limited
from .topics.maintenance import Maintenance, Work
from .topics.producer_names import ProducerNames
from .topics.rates import Rates
from .topics.topic import Topic
from .topics.topic_index import TopicIndex
from .topics.topic_watches import TopicWatches
from .topics.unloading import LOOKS, Unloading

if TYPE_CHECKING:
    import ssl

    from ..security.authentication.authenticator import Authenticator
    from ..security.server_tls import TlsServerContext
    from ..security.tls_listener import TlsListener
    from .policies.namespaces import Namespaces
    from .storage.port import LogStore

log = logging.getLogger(__name__)

COORDINATE_TOPIC = "persistent://public/functions/coordinate"
PARTICIPANTS = "participants"
NO_REQUEST = 0xFFFFFFFF_FFFFFFFF
"""Request id of an error that does not respond to a request."""
HANDSHAKE_TIMEOUT_S = 10.0
"""Timeout of a client's TLS handshake."""
CLOSE_TIMEOUT_S = 2.0
"""How long connections may take to close when the broker stops."""


class BrokerService:
    """A broker.

    Attributes:
        config: broker settings.
        storage: storage of entries and cursors.
        namespaces: tenants, namespaces, policies and partitioned topics.
        schemas: schemas of all topics.
        authorization: access rules, or None if authorization is disabled.
        topics: loaded topics by full name.
        topic_index: names of all topics by namespace.
        topic_watches: topic lists that clients watch.
        connections: open connections.
        turns: connections whose commands wait for a later event loop iteration.
        reports: lock for requests that visit all topics, so that their slices do not add up.
        frame_memory: memory for large incoming frames.
        delivery_memory: memory for unsent bytes of slow clients.
        shared_rates: rate limits shared by topics.
        rates: average rates over the last period, for statistics.
        lookups_waiting: number of lookups that wait for the metadata store.
        maintenance: topics that are due for periodic work.
        tasks: background tasks, which are cancelled when the broker stops.
        authenticator: authenticates clients; None accepts all clients.
        tls: certificates for TLS listeners, or None if there are none.
        advertised: addresses that the settings advertise to clients.
        state_store_url: returns the address of this broker's state store, or None while it is starting; the attribute
            is None without a state store.
        web_port, web_tls_port: ports of the admin REST API without and with TLS, set by its server; None if unknown or
            not served.
    """

    def __init__(
        self,
        config: BrokerConfig,
        storage: LogStore,
        namespaces: Namespaces,
        clock: Callable[[], float] = time.time,
    ):
        self.config = config
        self.storage = storage
        self.namespaces = namespaces
        self.schemas = SchemaRegistry(namespaces.store)
        is_guarded = config.authorization.is_enabled
        self.authorization = Authorization(config.authorization, namespaces) if is_guarded else None
        self.topics: dict[str, Topic] = {}
        self.topic_index = TopicIndex(lambda: (*storage.log_names(), *self.topics))
        self.topic_watches = TopicWatches(self.topic_names)
        self.connections: dict[Connection, None] = {}  # in order of arrival
        self._places = ConnectionPlaces()
        self.turns = Turns()
        self.reports = FairLock()
        self.frame_memory = FrameMemory(self._half_of_buffer)
        self.delivery_memory = DeliveryMemory(self._half_of_buffer, config.write_buffer_bytes, lambda: self.connections)
        self.rates = Rates()
        self.shared_rates = SharedRates()
        self.maintenance = Maintenance(self.topics, storage, namespaces)
        self.is_started = False
        self.lookups_waiting = 0
        self.port = config.broker_port
        self.tls_port = config.broker_tls_port
        self.authenticator: Authenticator | None = None
        self.tls: TlsServerContext | None = None
        self.advertised = Advertised(config)
        self.state_store_url: Callable[[], str | None] | None = None
        self.web_port: int | None = None
        self.web_tls_port: int | None = None
        self._clock = clock
        self._servers: list[asyncio.Server | TlsListener] = []
        self.tasks = TaskSet("broker")
        self._incarnations = TopicIncarnations(self)
        self._producer_names = ProducerNames(config.cluster, namespaces.store)
        self._changed_namespaces: set[str] = set()
        self._unloading: Unloading | None = None
        self._all_gone = asyncio.Event()
        self._all_gone.set()

    def __repr__(self) -> str:
        return f"BrokerService({self.broker_url}, topics={len(self.topics)}, connections={len(self.connections)})"

    # Start and stop

    @property
    def broker_url(self) -> str:
        """URL on which the broker listens."""
        return f"pulsar://{url_host(self.config.host)}:{self.port}"

    @property
    def broker_tls_url(self) -> str:
        """URL on which the broker listens with TLS, or an empty string if TLS is disabled."""
        return "" if self.tls_port is None else f"pulsar+ssl://{url_host(self.config.host)}:{self.tls_port}"

    @property
    def broker_id(self) -> str:
        """Id of this broker: ``host:port`` of its REST API."""
        port = self.config.web_port if self.web_port is None else self.web_port
        return f"{self.advertised.host or url_host(self.config.host)}:{port}"

    def lookup_urls(self, listener: str) -> tuple[str, str]:
        """Return the URLs for lookup responses, without and with TLS. An unavailable URL is an empty string.

        Raises:
            ServiceNotReady: the listener does not exist.
        """
        plain = self.advertised.url("pulsar", self.port, listener)
        tls = self.advertised.url("pulsar+ssl", self.tls_port, listener)
        return self.broker_url if plain is None else plain, self.broker_tls_url if tls is None else tls

    async def start(self) -> None:
        """Start listening, and start the background tasks.

        Raises:
            OSError: a port is in use.
            InvalidConfig: an authentication or TLS setting is invalid.
        """
        await self._prepare_security()
        await self._producer_names.start()
        self.storage.on_drained(self._read_on)
        self.schemas.start()
        self.namespaces.on_policies = self._note_policies
        self.config = self.namespaces.config  # including changes made before a restart
        host = self.config.host
        self.port = await self._listen(host, self.config.broker_port)
        if self.config.broker_tls_port is not None and self.tls is not None:
            self.tls_port = await self._listen_with_tls(host, self.config.broker_tls_port, self.tls.context)
        for one in self.config.bind_addresses:
            if one.scheme == "pulsar":
                port = await self._listen(one.host, one.port, one.listener)
                if one.listener == OWN_LISTENER:
                    self.advertised.own_url = f"pulsar://{url_host(one.host)}:{port}"
            elif one.scheme == "pulsar+ssl" and self.tls is not None:
                await self._listen_with_tls(one.host, one.port, self.tls.context, one.listener)
        self.is_started = True
        self._every(self.config.stats_period_s, self._take_rates, "rates")
        self._every(self.config.stats_period_s, self.trim_topics, "trimming")
        self._every(self.config.compaction_check_s, self._check_compaction, "compaction thresholds")
        self._every(self.config.deduplication_check_s, self._check_deduplication, "deduplication")
        inactivity = Inactivity(self, self._incarnations)
        self._every(lambda: self.config.inactive_check_s, inactivity.delete_topics, "inactive topics")
        self._every(self.config.subscription_expiry_check_s, inactivity.expire_subscriptions, "subscriptions")
        self._every(self.config.backlog_check_s, self.check_backlogs, "backlog quotas")
        self._every(self.config.message_expiry_check_s, inactivity.expire_messages, "message expiry")
        if self.config.unload_idle_after_s:
            unloading = Unloading(self, self._incarnations, lambda topic: self._retention(topic)[0])
            self._every(self.config.unload_idle_after_s / LOOKS, unloading.unload_idle, "idle topics")
            self.tasks.keep(unloading.keep_loading_due, "loading topics for due policies")
            self._unloading = unloading

    async def _prepare_security(self) -> None:
        """Load keys and certificates before the first client can connect."""
        config = self.config
        self.authenticator = await asyncio.to_thread(open_authenticator, config.security, self._clock)
        if config.uses_tls:
            config.tls.check_together("brokerServicePortTls, webServicePortTls or bindAddresses")
            from ..security.server_tls import TlsServerContext  # imported here, as it loads ssl

            self.tls = await asyncio.to_thread(TlsServerContext, config.tls)
            self.tasks.keep(self.tls.keep_current, "certificates")

    async def _listen(self, host: str, port: int, listener: str = "") -> int:
        """Listen on a port for clients of a listener, and return the actual port."""
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self, listener), host, port, backlog=1024
        )
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _listen_with_tls(self, host: str, port: int, context: ssl.SSLContext, listener: str = "") -> int:
        from ..security.tls_listener import TlsListener, bound
        from ..security.tls_reception import TlsReception

        sockets = await bound(host, port)
        server = TlsListener(sockets, context, lambda: TlsReception(Connection(self, listener)), HANDSHAKE_TIMEOUT_S)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def _every(self, period_s: float | Callable[[], float], work: Callable[[], Awaitable[None]], name: str) -> None:
        """Run work periodically, first after one period. The period is a function if it may change."""

        async def keep() -> None:
            while True:
                await asyncio.sleep(period_s() if callable(period_s) else period_s)
                await work()

        self.tasks.keep(keep, name)

    async def stop(self) -> None:
        """Stop listening, close all connections and cancel all tasks.

        Cancellation: connections may remain open; call again.
        """
        self.is_started = False
        for server in self._servers:
            server.close()
        for topic in list(self.topics.values()):
            topic.close()
        for connection in list(self.connections):
            connection.close()
        await self.tasks.close()
        await within(CLOSE_TIMEOUT_S, self._all_gone.wait())
        for connection in list(self.connections):
            connection.abort()
        for server in self._servers:
            await server.wait_closed()
        if self.authenticator is not None:
            self.authenticator.close()
        self.topics.clear()

    def connection_made(self, connection: Connection) -> None:
        """Register a connection."""
        self.connections[connection] = None
        self._all_gone.clear()
        gives_way = self._places.arrived(connection)
        if gives_way is not None:
            log.info("closing %r: %d connections have not sent CONNECT", gives_way, self._places.max_unknown)
            gives_way.abort()
        if self.config.max_connections or self.config.max_connections_per_ip:
            address = connection.address.rpartition(":")[0]
            from_there = sum(one.address.rpartition(":")[0] == address for one in self.connections)
            refusal = connection_refusal(self.config, len(self.connections), from_there, address)
            if refusal is not None:
                connection.fail(NO_REQUEST, NotAllowed(refusal))
                connection.close()

    def connection_known(self, connection: Connection) -> str:
        """Admit a connection that has sent CONNECT; return an error message if it is rejected, else an empty string."""
        return self._places.admit(connection)

    def connection_lost(self, connection: Connection) -> None:
        """Unregister a connection."""
        self._places.left(connection)
        self.connections.pop(connection, None)
        if not self.connections:
            self._all_gone.set()

    def _half_of_buffer(self) -> int:
        return self.config.publish_buffer_mb * MIB // 2

    def _read_on(self) -> None:
        for connection in list(self.connections):
            connection.read_on()

    def _note_policies(self, namespace: str, topic: str) -> None:
        """Apply changed policies to topics. Loaded topics apply all changes of one event loop iteration together."""
        if self._unloading is not None:
            self._unloading.note_policies(namespace, topic)
        if not self._changed_namespaces:
            asyncio.get_running_loop().call_soon(self._follow_policies)
        self._changed_namespaces.add(namespace)

    def _follow_policies(self) -> None:
        changed, self._changed_namespaces = self._changed_namespaces, set()
        self.config = self.namespaces.config
        for topic in list(self.topics.values()):
            if "" in changed or topic.name.namespace_name in changed:
                topic.follow_policies()

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds."""
        return int(self._clock() * 1000)

    async def _take_rates(self) -> None:
        alone = partial(self.maintenance.failing_alone, Work.RATES)
        await self.rates.update(await self._busy_topics(), self.config.stats_period_s, alone)

    async def _busy_topics(self) -> set[Topic]:
        """Return the topics that changed or have clients."""
        busy = {topic async for topic in self.maintenance.take(Work.RATES, self.now_ms())}
        for connection in self.connections:
            busy.update(producer.topic for producer in connection.producers.values())
            busy.update(consumer.subscription.topic for consumer in connection.consumers.values())
        return busy

    async def trim_topics(self) -> None:
        """Delete acknowledged entries that exceed the retention. Called periodically.

        Entries of a topic without subscriptions are retained for a while, so that recently published messages are
        still available when a consumer subscribes or a reader starts.

        If trimming a topic fails, this is logged and retried in the next period. While storage rejects all changes,
        which it logs itself, nothing is trimmed.

        Cancellation: safe.
        """
        async for topic in self.maintenance.take(Work.TRIM, self.now_ms()):
            if not self.namespaces.has_namespace(topic.name.namespace_name):
                continue
            if self.storage.failure is not None:
                self.maintenance.again(Work.TRIM, topic)
                return
            with self.maintenance.failing_alone(Work.TRIM, topic):
                time_ms, size_bytes = self._retention(topic)
                await topic.log.trim(time_ms, size_bytes)
                self.maintenance.trimmed(topic, time_ms)

    def _retention(self, topic: Topic) -> tuple[int, int]:
        time_ms, size_bytes = self.namespaces.effective(topic.name).retention
        is_unread = all(name == DEDUPLICATION_CURSOR for name in topic.log.cursors)
        if is_unread and (time_ms, size_bytes) == (0, 0):
            return int(self.config.unread_retention_s * 1000), -1
        return time_ms, size_bytes

    async def check_backlogs(self) -> None:
        """Enforce the backlog quotas of all topics. Called periodically.

        Cancellation: safe.
        """
        await enforce_all(self, self.topics.values())

    async def _check_compaction(self) -> None:
        async for topic in self.maintenance.take(Work.COMPACTION, self.now_ms()):
            if not self.namespaces.has_namespace(topic.name.namespace_name):
                continue
            with self.maintenance.failing_alone(Work.COMPACTION, topic):
                self._begin_due_compaction(topic)

    def _begin_due_compaction(self, topic: Topic) -> None:
        threshold = self.namespaces.compaction_threshold(topic.name)
        if threshold and topic.compaction.waiting_bytes > threshold:
            self.maintenance.again(Work.COMPACTION, topic)
            if not topic.compaction.is_running:
                topic.begin_compaction()

    async def _check_deduplication(self) -> None:
        async for topic in self.maintenance.take(Work.DEDUPLICATION, self.now_ms()):
            await self.adjust_deduplication([topic])
            with self.maintenance.failing_alone(Work.DEDUPLICATION, topic):
                topic.deduplication.tick()
                if topic.deduplication.status is not Status.DISABLED:
                    self.maintenance.again(Work.DEDUPLICATION, topic)

    async def adjust_deduplication(self, topics: Iterable[Topic]) -> None:
        """Enable or disable deduplication of topics according to the current policies.

        Cancellation: some topics may remain unchanged; call again.
        """
        for topic in list(topics):
            with self.maintenance.failing_alone(Work.DEDUPLICATION, topic):
                if not topic.is_closed and not topic.deduplication.is_as_wanted:
                    await topic.deduplication.adjust()

    # Names

    def new_producer_name(self) -> str:
        """Return a producer name that is unique in the cluster."""
        return self._producer_names.next()

    def has_topic(self, name: TopicName) -> bool:
        """Return whether a non-partitioned topic or a partition exists and is not being deleted."""
        text = str(name)
        return text not in self._incarnations.deleting and (text in self.topics or self.storage.has_log(text))

    def non_persistent_names(self, namespace: str) -> list[str]:
        """Return the non-persistent topics of ``tenant/namespace``, which exist while loaded."""
        return self.topic_index.names(namespace, "non-persistent")

    def topic_names(self, namespace: str) -> list[str]:
        """Return the existing persistent topics of ``tenant/namespace``, with each partition listed."""
        return self.topic_index.names(namespace, "persistent")

    # Topics

    async def topic(self, name: TopicName, *, create: bool = True) -> Topic:
        """Return a topic, loading it and creating it if needed and allowed.

        Raises:
            TopicNotFound: the topic does not exist, and must not be created.
            ServiceNotReady: its namespace does not exist; the client's next lookup reports that.
            NotAllowed: a topic with this name cannot exist.

        Cancellation: the topic may still be created.
        """
        text = str(name)
        topic = self.topics.get(text)
        if topic is not None:
            return topic
        self.check_name(name)
        if not self.storage.has_log(text) and not (create and self._is_created_on_use(name)):
            raise TopicNotFound(f"Topic {text} does not exist")
        return await self._incarnations.load(name, create=create)

    def check_name(self, name: TopicName) -> None:
        """Raise if a topic with that name cannot exist.

        Raises:
            NotAllowed: the name is invalid, or belongs to a partitioned topic.
            ServiceNotReady: its namespace does not exist; the client's next lookup reports that.
        """
        if name.base.local in (".", ".."):
            raise NotAllowed(f"topic {name.local!r} is not a valid name in the metadata store: choose another")
        if not self.namespaces.has_namespace(name.namespace_name):
            raise ServiceNotReady(
                f"Namespace bundle ({name.namespace_name}/0x00000000_0xffffffff) for topic ({name}) not served by this"
                f" instance:{self.broker_id}. Please redo the lookup."
            )
        partitions = self.namespaces.partitions(name.base)
        if partitions and name.partition < 0:
            raise NotAllowed(f"{name} has {partitions} partitions: use {name}-partition-0 … {partitions - 1}")
        if partitions and name.partition >= partitions:
            raise NotAllowed(f"{name.base} has {partitions} partitions, of which the last is number {partitions - 1}")

    def check_room(self, name: TopicName, more: int = 1) -> None:
        """Raise if the namespace has too many topics (`maxTopicsPerNamespace`).

        Args:
            name: name of the new topic.
            more: number of new topics, with each partition counted.

        Raises:
            NotAllowed: the limit would be exceeded.
        """
        limit = self.namespaces.max_topics(name.namespace_name)
        if not limit or not is_limited(name) or not name.is_persistent:
            return  # as in Pulsar, non-persistent topics are not counted
        present = self.topic_index.user_topic_count(name.namespace_name)
        present += self._incarnations.creating_count(name.namespace_name)
        if present + more > limit:
            raise NotAllowed(TOO_MANY_TOPICS)

    def _is_created_on_use(self, name: TopicName) -> bool:
        # Partitions of an existing partitioned topic are created on first use, regardless of the policy.
        is_partition = name.partition >= 0 and self.namespaces.partitions(name.base) > 0
        return is_partition or self.namespaces.auto_topic_creation(name).is_allowed

    async def create_topic(self, name: TopicName, properties: Mapping[str, str] | None = None) -> Topic:
        """Return a topic, creating it regardless of the automatic creation policy.

        Args:
            name: full topic name.
            properties: topic properties; None preserves existing ones.

        Raises:
            NotAllowed: a topic with this name cannot exist.
        """
        self.check_name(name)
        topic = self.topics.get(str(name)) or await self._incarnations.load(name, create=True)
        if properties:
            await self._incarnations.set_properties(topic, properties)
        return topic

    async def unload_topic(self, name: TopicName) -> None:
        """Close a topic, which is reloaded when its clients reconnect.

        Raises:
            TopicNotFound: the topic does not exist.
        """
        self._incarnations.unload(name)

    async def delete_topic(self, name: TopicName, force: bool = False, *, with_subscriptions: bool = False) -> None:
        """Delete a topic with its entries, subscriptions, policies and permissions.

        Requests for the name wait until the old topic is completely deleted.

        Args:
            name: full topic name.
            force: whether to close its producers and consumers.
            with_subscriptions: whether to also delete subscriptions without consumers.

        Raises:
            TopicNotFound: the topic does not exist.
            NotAllowed: the topic is in use; ``force`` closes its producers and consumers first.
            StorageError: the disk or the metadata store failed. The topic may still exist; retry the deletion.

        Cancellation: the topic is deleted nevertheless.
        """
        await self._incarnations.delete(name, force=force, with_subscriptions=with_subscriptions)

    async def forget_schemas(self, name: TopicName) -> None:
        """Delete the schemas of a deleted partitioned topic unless the same topic in the other domain shares them.

        Cancellation: some schemas may remain; call again.
        """
        await self._incarnations.forget_schemas(name)

    # Workers

    def election_participants(self) -> list[tuple[str, dict[str, str]]]:
        """Return the name and properties of each consumer in the workers' election, leader first.

        Any client that may subscribe can choose these values.
        """
        topic = self.topics.get(COORDINATE_TOPIC)
        subscription = topic.subscriptions.get(PARTICIPANTS) if topic is not None else None
        if subscription is None:
            return []
        leader = subscription.active_consumer
        consumers = sorted(subscription.consumers, key=lambda consumer: consumer is not leader)
        return [(consumer.name, consumer.metadata) for consumer in consumers]
