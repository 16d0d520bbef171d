"""Broker settings: a frozen record, validated on creation.

Settings that Pulsar's `broker.conf` has are documented with their name there. `cli/` parses flags and files.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InvalidConfig
from ..metadata.store.url import parse_store_url
from ..security.authentication.settings import ServerSecurity
from ..security.authorization.settings import NO_AUTHORIZATION, AuthorizationSettings
from ..security.credentials.client_security import ClientSecurity
from ..security.server_tls_settings import ServerTls
from ..wire.frames import DEFAULT_MAX_MESSAGE_BYTES, FRAME_PADDING_BYTES
from .listeners import BindAddress, Listeners, check_listeners

MIB = 1024 * 1024
ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 (compared with, not bound to)
"""Wildcard hosts to listen on, which clients cannot connect to."""
INACTIVE_MODES = ("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up")
SUBSCRIPTION_TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")
SCHEMA_STRATEGIES = (
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)
BACKLOG_POLICIES = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """Settings of one broker.

    Attributes:
        data_dir: directory for storage and metadata.
        host: address to listen on, returned by lookups unless another address is advertised. Loopback by default.
        advertised_address: `advertisedAddress`; host that lookups return instead.
        advertised_listeners: `advertisedListeners`; see `listeners`. Overrides `advertised_address`.
        internal_listener: `internalListenerName`; listener for clients that do not request one. If empty, the first
            listener is used.
        bind_addresses: `bindAddresses`; additional addresses to listen on, each for one listener.
        broker_port: port for the binary protocol; 0 picks a free port.
        web_port: port for the admin REST API; 0 picks a free port.
        broker_tls_port: `brokerServicePortTls`; TLS port besides `broker_port`. 0 picks a free port; None disables TLS.
        web_tls_port: `webServicePortTls`; TLS port besides `web_port`, with the same special values.
        tls: TLS settings of both ports; see `ServerTls` for the names in broker.conf.
        security: client authentication; see `ServerSecurity`.
        allowed_hosts: `webServiceAllowedHosts` (not a Pulsar setting); host names that the web port accepts in Host and
            Origin headers, in addition to this machine's names.
        cluster: cluster name, used in generated producer names.
        metadata_store_url: `metadataStoreUrl`; empty for SQLite in the data directory.
        metadata_timeout_s: `metadataStoreOperationTimeoutSeconds`; timeout for ZooKeeper, at startup and per operation.
            Shorter than Pulsar's 30 s, at which clients time out before they receive the reason.
        max_message_bytes: `maxMessageSize`, which is also sent to clients. A frame may be 10 KiB longer.
        keep_alive_s: `keepAliveIntervalSeconds`; a peer that sends nothing for two intervals is disconnected.
        liveness_timeout_s: `connectionLivenessCheckTimeoutMillis`; how long a peer that holds a producer name or
            exclusive subscription may take to respond when another client requests it.
        allow_auto_topic_creation: `allowAutoTopicCreation`.
        auto_topic_partitions: `defaultNumPartitions`; 0 creates non-partitioned topics.
        allow_auto_subscription_creation: `allowAutoSubscriptionCreation`.
        acknowledge_inside_batches: `acknowledgmentAtBatchIndexLevelEnabled`. Unlike in Pulsar, on by default, so that
            a failed message does not cause the rest of its batch to be redelivered.
        failover_delay_s: `activeConsumerFailoverDelayTimeMillis`; how long to wait for acknowledgements from the
            previous active consumer.
        max_pending_publishes: `maxPendingPublishRequestsPerConnection`; at this limit the socket is not read until
            half of the requests are answered.
        max_pending_requests: concurrent requests per connection; at this limit the socket is not read.
        max_read_entries: `dispatcherMaxReadBatchSize`; entries per read of a subscription.
        max_read_bytes: bytes per read of a subscription.
        max_round_robin_entries: `dispatcherMaxRoundRobinBatchSize`; entries sent to a shared consumer at a time.
        max_unacked_per_consumer: `maxUnackedMessagesPerConsumer`, for shared consumers; 0 means unlimited.
        max_unacked_per_subscription: `maxUnackedMessagesPerSubscription`; 0 means unlimited.
        write_buffer_bytes: unsent bytes of a socket above which its consumers receive no more messages.
        publish_buffer_mb: `maxMessagePublishBufferSizeInMB`; memory shared by all connections, half of it for large
            incoming frames and half for unsent bytes of slow peers. 0 or less means unlimited.
        max_consumer_metadata_bytes: `maxConsumerMetadataSize`; size of the names and values of a consumer's properties.
        unread_retention_s: how long entries of a topic without subscriptions are retained if no retention is set. The
            same as in Pulsar, which closes no ledger earlier (`managedLedgerMinLedgerRolloverTimeMinutes`).
        compaction_threshold_bytes: `brokerServiceCompactionThresholdInBytes`; uncompacted bytes above which a topic is
            compacted, unless overridden by its namespace. 0 compacts only on request.
        compaction_check_s: `brokerServiceCompactionMonitorIntervalInSeconds`; interval at which this is checked.
        deduplication: `brokerDeduplicationEnabled`; default for topics and namespaces without a policy.
        deduplication_max_producers: `brokerDeduplicationMaxNumberOfProducers`; names of disconnected producers that a
            topic remembers.
        deduplication_snapshot_entries: `brokerDeduplicationEntriesInterval`; approximate maximum of entries to reread
            when a topic is loaded.
        deduplication_snapshot_age_s: `brokerDeduplicationSnapshotIntervalSeconds`; the same limit as an age.
        deduplication_check_s: `brokerDeduplicationSnapshotFrequencyInSeconds`; interval at which this is checked.
        deduplication_inactivity_s: `brokerDeduplicationProducerInactivityTimeoutMinutes`; how long the name of a
            disconnected producer is remembered.
        retention_minutes: `defaultRetentionTimeInMinutes`; how long acknowledged messages are retained in namespaces
            without a retention policy; -1 means forever.
        retention_mb: `defaultRetentionSizeInMB`; size of retained acknowledged messages; -1 means unlimited.
        message_ttl_s: `ttlDurationDefaultInSeconds`; age at which messages expire for durable subscriptions; 0 means
            never.
        message_expiry_check_s: `messageExpiryCheckIntervalInMinutes`.
        subscription_expiration_s: `subscriptionExpirationTimeMinutes`; how long a subscription without consumers is
            retained; 0 means forever.
        subscription_expiry_check_s: `subscriptionExpiryCheckIntervalInMinutes`.
        delete_inactive_topics: `brokerDeleteInactiveTopicsEnabled`. Unlike in Pulsar, off by default, so that messages
            that were never read are not lost unexpectedly.
        inactive_check_s: `brokerDeleteInactiveTopicsFrequencySeconds`.
        inactive_after_s: `brokerDeleteInactiveTopicsMaxInactiveDurationSeconds`; 0 uses `inactive_check_s`.
        inactive_mode: `brokerDeleteInactiveTopicsMode`; delete topics without subscriptions, or topics whose
            subscriptions have all caught up.
        unload_idle_after_s: `brokerUnloadIdleTopicsAfterSeconds` (not a Pulsar setting); how long an unused topic
            remains in memory; 0 means forever.
        max_tenants: `maxTenants`; 0 means unlimited, as in the following limits.
        max_namespaces_per_tenant: `maxNamespacesPerTenant`.
        max_topics_per_namespace: `maxTopicsPerNamespace`; each partition is a topic.
        max_partitions: `maxNumPartitionsPerPartitionedTopic`; 0 applies only `MAX_PARTITIONS`.
        max_lookups: `maxConcurrentLookupRequest`; lookups that may wait for the metadata store concurrently.
        max_producers_per_topic: `maxProducersPerTopic`, including those that wait for exclusive access.
        max_consumers_per_topic: `maxConsumersPerTopic`.
        max_consumers_per_subscription: `maxConsumersPerSubscription`.
        max_subscriptions_per_topic: `maxSubscriptionsPerTopic`.
        max_connections: `brokerMaxConnections`.
        max_connections_per_ip: `brokerMaxConnectionsPerIp`.
        key_shared_consistent_hashing: `subscriptionKeySharedUseConsistentHashing`; whether Key_Shared subscriptions
            distribute keys on a hash ring. Otherwise each new consumer takes half of the largest hash range.
        key_shared_points: `subscriptionKeySharedConsistentHashingReplicaPoints`; points per consumer on that ring.
        key_shared_look_ahead_per_consumer: `keySharedLookAheadMsgInReplayThresholdPerConsumer`; entries per consumer
            that may wait while later entries are dispatched to other consumers.
        key_shared_look_ahead: `keySharedLookAheadMsgInReplayThresholdPerSubscription`; the same limit per subscription.
        subscription_types: `subscriptionTypesEnabled`.
        publish_rate_messages: `maxPublishRatePerTopicInMessages`, per second; 0 means unlimited, as in the following
            rates.
        publish_rate_bytes: `maxPublishRatePerTopicInBytes`.
        broker_publish_messages: `brokerPublisherThrottlingMaxMessageRate`, for all topics combined.
        broker_publish_bytes: `brokerPublisherThrottlingMaxByteRate`.
        broker_dispatch_messages: `dispatchThrottlingRateInMsg`, for all topics combined.
        broker_dispatch_bytes: `dispatchThrottlingRateInByte`.
        topic_dispatch_messages: `dispatchThrottlingRatePerTopicInMsg`.
        topic_dispatch_bytes: `dispatchThrottlingRatePerTopicInByte`.
        subscription_dispatch_messages: `dispatchThrottlingRatePerSubscriptionInMsg`.
        subscription_dispatch_bytes: `dispatchThrottlingRatePerSubscriptionInByte`.
        subscribe_rate: `subscribeThrottlingRatePerConsumer`; how often a consumer may subscribe to a topic within
            `subscribe_period_s`.
        subscribe_period_s: `subscribeRatePeriodPerConsumerInSecond`.
        backlog_limit_bytes: `backlogQuotaDefaultLimitBytes`; a negative value means unlimited.
        backlog_limit_s: `backlogQuotaDefaultLimitSecond`; age of the oldest message in a backlog; 0 or less means
            unlimited.
        backlog_policy: `backlogQuotaDefaultRetentionPolicy`; action when a limit is exceeded.
        backlog_check_s: `backlogQuotaCheckIntervalInSeconds`.
        delayed_delivery: `delayedDeliveryEnabled`; if disabled, delays are ignored.
        delayed_delivery_tick_ms: `delayedDeliveryTickTimeMillis`; messages due within the same tick are delivered
            together, up to one tick late but never early. Unlike in Pulsar, `isDelayedDeliveryDeliverAtTimeStrict` is
            always on.
        delayed_delivery_max_ms: `delayedDeliveryMaxDelayInMillis`; messages with a longer delay are rejected. 0 means
            unlimited.
        schema_strategy: `schemaCompatibilityStrategy`; default for topics and namespaces without a policy.
        system_schema_strategy: `systemTopicSchemaCompatibilityStrategy`; for topics named `__…`.
        allow_auto_update_schema: `isAllowAutoUpdateSchemaEnabled`; whether producers may add schemas, unless the
            namespace overrides this.
        encryption_required: `encryptionRequireOnProducer`; whether messages must be encrypted in all namespaces, except
            in topics named `__…`.
        enforce_schema_validation: `isSchemaValidationEnforced`; whether producers without a schema are rejected on
            topics that have one.
        stats_period_s: `statsUpdateFrequencyInSecs`; period over which rates are averaged, and interval of trimming.
        authorization: authorization settings.
        client_security: CA certificates trusted when forwarding requests to workers that support TLS
            (`brokerClientTrustCertsFilePath`); other fields are ignored.
        asks_by_tls_only: whether to forward requests to workers only over TLS (`brokerClientTlsEnabled`).
    """

    data_dir: Path = Path("data")
    host: str = "127.0.0.1"
    advertised_address: str = ""
    advertised_listeners: Listeners = field(default_factory=dict)
    internal_listener: str = ""
    bind_addresses: tuple[BindAddress, ...] = ()
    broker_port: int = 6650
    web_port: int = 8080
    broker_tls_port: int | None = None
    web_tls_port: int | None = None
    tls: ServerTls = field(default_factory=ServerTls)
    security: ServerSecurity = field(default_factory=ServerSecurity)
    allowed_hosts: tuple[str, ...] = ()
    cluster: str = "standalone"
    metadata_store_url: str = ""
    metadata_timeout_s: float = 10.0
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    keep_alive_s: float = 30.0
    liveness_timeout_s: float = 5.0
    allow_auto_topic_creation: bool = True
    auto_topic_partitions: int = 0
    allow_auto_subscription_creation: bool = True
    acknowledge_inside_batches: bool = True
    failover_delay_s: float = 1.0
    max_pending_publishes: int = 1000
    max_pending_requests: int = 10_000
    max_read_entries: int = 100
    max_read_bytes: int = MIB
    max_round_robin_entries: int = 20
    max_unacked_per_consumer: int = 50_000
    max_unacked_per_subscription: int = 200_000
    write_buffer_bytes: int = 2 * MIB
    publish_buffer_mb: int = 128
    max_consumer_metadata_bytes: int = 1024
    unread_retention_s: float = 600.0
    compaction_threshold_bytes: int = 0
    compaction_check_s: float = 60.0
    deduplication: bool = False
    deduplication_max_producers: int = 10_000
    deduplication_snapshot_entries: int = 1000
    deduplication_snapshot_age_s: float = 120.0
    deduplication_check_s: float = 120.0
    deduplication_inactivity_s: float = 360 * 60.0
    retention_minutes: int = 0
    retention_mb: int = 0
    message_ttl_s: float = 0.0
    message_expiry_check_s: float = 300.0
    subscription_expiration_s: float = 0.0
    subscription_expiry_check_s: float = 300.0
    delete_inactive_topics: bool = False
    inactive_check_s: float = 60.0
    inactive_after_s: float = 0.0
    inactive_mode: str = INACTIVE_MODES[0]
    unload_idle_after_s: float = 600.0
    max_tenants: int = 0
    max_namespaces_per_tenant: int = 0
    max_topics_per_namespace: int = 0
    max_partitions: int = 0
    max_lookups: int = 50_000
    max_producers_per_topic: int = 0
    max_consumers_per_topic: int = 0
    max_consumers_per_subscription: int = 0
    max_subscriptions_per_topic: int = 0
    max_connections: int = 0
    max_connections_per_ip: int = 0
    key_shared_consistent_hashing: bool = True
    key_shared_points: int = 100
    key_shared_look_ahead_per_consumer: int = 2000
    key_shared_look_ahead: int = 20_000
    subscription_types: tuple[str, ...] = SUBSCRIPTION_TYPES
    publish_rate_messages: int = 0
    publish_rate_bytes: int = 0
    broker_publish_messages: int = 0
    broker_publish_bytes: int = 0
    broker_dispatch_messages: int = 0
    broker_dispatch_bytes: int = 0
    topic_dispatch_messages: int = 0
    topic_dispatch_bytes: int = 0
    subscription_dispatch_messages: int = 0
    subscription_dispatch_bytes: int = 0
    subscribe_rate: int = 0
    subscribe_period_s: int = 30
    backlog_limit_bytes: int = -1
    backlog_limit_s: int = -1
    backlog_policy: str = BACKLOG_POLICIES[0]
    backlog_check_s: float = 60.0
    delayed_delivery: bool = True
    delayed_delivery_tick_ms: float = 1000.0
    delayed_delivery_max_ms: int = 0
    schema_strategy: str = "FULL"
    system_schema_strategy: str = "ALWAYS_COMPATIBLE"
    allow_auto_update_schema: bool = True
    enforce_schema_validation: bool = False
    encryption_required: bool = False
    stats_period_s: float = 60.0
    authorization: AuthorizationSettings = NO_AUTHORIZATION
    client_security: ClientSecurity = field(default_factory=ClientSecurity)
    asks_by_tls_only: bool = False

    def __post_init__(self) -> None:
        """Validate ranges, names and the metadata store URL.

        Raises:
            InvalidConfig: a setting is invalid; the message names it and its range.
        """
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InvalidConfig(f"{name}={value} is out of range: expected {low:g} to {high:g}")
        if self.inactive_mode not in INACTIVE_MODES:
            raise InvalidConfig(f"invalid inactive_mode {self.inactive_mode!r}: expected {' or '.join(INACTIVE_MODES)}")
        if self.backlog_policy not in BACKLOG_POLICIES:
            raise InvalidConfig(
                f"invalid backlog_policy {self.backlog_policy!r}: expected {' or '.join(BACKLOG_POLICIES)}"
            )
        for kind in self.subscription_types:
            if kind not in SUBSCRIPTION_TYPES:
                raise InvalidConfig(
                    f"invalid subscription type {kind!r}: expected one of {', '.join(SUBSCRIPTION_TYPES)}"
                )
        for strategy in (self.schema_strategy, self.system_schema_strategy):
            if strategy not in SCHEMA_STRATEGIES:
                raise InvalidConfig(
                    f"invalid schema strategy {strategy!r}: expected one of {', '.join(SCHEMA_STRATEGIES)}"
                )
        parse_store_url(self.metadata_store_url)
        check_listeners(self.advertised_listeners, self.internal_listener, self.bind_addresses)

    @property
    def max_frame_bytes(self) -> int:
        """Maximum size of an incoming frame."""
        return self.max_message_bytes + FRAME_PADDING_BYTES

    @property
    def is_local_address(self) -> bool:
        """Whether remote clients cannot reach the address in lookup responses, and must keep using their own.

        This applies to loopback and to the wildcards 0.0.0.0 and ::, but never to advertised listeners.
        """
        if self.advertised_listeners:
            return False
        host = self.advertised_address or self.host
        try:
            address = ipaddress.ip_address(host)
            return address.is_loopback or address.is_unspecified
        except ValueError:
            return host == "localhost"

    @property
    def uses_tls(self) -> bool:
        """Whether any socket uses TLS."""
        ports = (self.broker_tls_port, self.web_tls_port)
        return any(port is not None for port in ports) or any(one.has_tls for one in self.bind_addresses)


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("broker_port", 0, 65535),
    ("web_port", 0, 65535),
    ("broker_tls_port", 0, 65535),
    ("web_tls_port", 0, 65535),
    ("metadata_timeout_s", 0.1, 3600),
    ("max_message_bytes", 1024, 512 * MIB),
    ("keep_alive_s", 0.05, 86400),
    ("liveness_timeout_s", 0.01, 3600),
    ("auto_topic_partitions", 0, 10_000),
    ("failover_delay_s", 0, 3600),
    ("max_pending_publishes", 1, 1_000_000),
    ("max_pending_requests", 1, 1_000_000),
    ("max_read_entries", 1, 100_000),
    ("max_read_bytes", 1024, 1 << 30),
    ("max_round_robin_entries", 1, 100_000),
    ("max_unacked_per_consumer", 0, 1 << 31),
    ("max_unacked_per_subscription", 0, 1 << 31),
    ("write_buffer_bytes", 1024, 1 << 30),
    ("publish_buffer_mb", -1, 1 << 20),
    ("max_consumer_metadata_bytes", 1, 1 << 20),
    ("unread_retention_s", 0, 1 << 31),
    ("compaction_threshold_bytes", 0, 1 << 62),
    ("compaction_check_s", 0.05, 86400),
    ("deduplication_max_producers", 1, 1_000_000),
    ("deduplication_snapshot_entries", 1, 1_000_000),
    ("deduplication_snapshot_age_s", 0, 86400),
    ("deduplication_check_s", 0.05, 86400),
    ("deduplication_inactivity_s", 1, 1 << 31),
    ("retention_minutes", -1, 1 << 31),
    ("retention_mb", -1, 1 << 40),
    ("message_ttl_s", 0, 1 << 31),
    ("message_expiry_check_s", 0.05, 1 << 31),
    ("subscription_expiration_s", 0, 1 << 40),
    ("subscription_expiry_check_s", 0.05, 1 << 31),
    ("inactive_check_s", 0.05, 1 << 31),
    ("inactive_after_s", 0, 1 << 31),
    ("unload_idle_after_s", 0, 1 << 31),
    ("max_tenants", 0, 1 << 31),
    ("max_namespaces_per_tenant", 0, 1 << 31),
    ("max_topics_per_namespace", 0, 1 << 31),
    ("max_partitions", 0, 1 << 31),
    ("max_lookups", 1, 1 << 31),
    ("max_producers_per_topic", 0, 1 << 31),
    ("max_consumers_per_topic", 0, 1 << 31),
    ("max_consumers_per_subscription", 0, 1 << 31),
    ("max_subscriptions_per_topic", 0, 1 << 31),
    ("max_connections", 0, 1 << 31),
    ("max_connections_per_ip", 0, 1 << 31),
    ("key_shared_points", 1, 10_000),
    ("key_shared_look_ahead_per_consumer", 1, 1 << 31),
    ("key_shared_look_ahead", 1, 1 << 31),
    ("publish_rate_messages", 0, 1 << 62),
    ("publish_rate_bytes", 0, 1 << 62),
    ("broker_publish_messages", 0, 1 << 62),
    ("broker_publish_bytes", 0, 1 << 62),
    ("broker_dispatch_messages", 0, 1 << 62),
    ("broker_dispatch_bytes", 0, 1 << 62),
    ("topic_dispatch_messages", 0, 1 << 62),
    ("topic_dispatch_bytes", 0, 1 << 62),
    ("subscription_dispatch_messages", 0, 1 << 62),
    ("subscription_dispatch_bytes", 0, 1 << 62),
    ("subscribe_rate", 0, 1 << 31),
    ("subscribe_period_s", 1, 1 << 31),
    ("backlog_limit_bytes", -1, 1 << 62),
    ("backlog_limit_s", -1, 1 << 31),
    ("backlog_check_s", 0.05, 86400),
    ("delayed_delivery_tick_ms", 1, 3_600_000),
    ("delayed_delivery_max_ms", 0, 1 << 62),
    ("stats_period_s", 0.05, 86400),
)
