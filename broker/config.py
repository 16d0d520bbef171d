"""What a broker can be told: one frozen record, checked once.

The names of Pulsar's `broker.conf` are given where the setting has one; flags and files are read in `cli/`.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidConfig
from ..metadata.store.url import parse_store_url
from ..wire.frames import DEFAULT_MAX_MESSAGE_BYTES, FRAME_PADDING_BYTES

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """Settings of one broker.

    Attributes:
        data_dir: where storage and metadata lie.
        host: address to listen on, and to name in lookups. Loopback unless told otherwise.
        broker_port: port of the binary protocol; 0 takes a free one.
        web_port: port of the admin REST; 0 takes a free one.
        allowed_hosts: names by which requests may call the web port, beside those of this machine, and whose pages may
            ask (`webServiceAllowedHosts`; ours, Pulsar has no key for it).
        cluster: name of the cluster, in generated producer names.
        metadata_store_url: `metadataStoreUrl`; empty for SQLite in the data directory.
        metadata_timeout_s: `metadataStoreOperationTimeoutSeconds`; how long to wait for ZooKeeper, at the start and for
            each operation. Shorter than Pulsar's 30 s, after which clients give up: they shall see the reason.
        max_message_bytes: `maxMessageSize`; told to clients, a frame may be 10 KiB longer.
        keep_alive_s: `keepAliveIntervalSeconds`; a peer silent for two of them is gone.
        liveness_timeout_s: `connectionLivenessCheckTimeoutMillis`; how long a peer that holds a name or an exclusive
            subscription has to answer when somebody else wants it.
        allow_auto_topic_creation: `allowAutoTopicCreation`.
        auto_topic_partitions: `defaultNumPartitions` of a created topic; 0 creates topics without partitions.
        allow_auto_subscription_creation: `allowAutoSubscriptionCreation`.
        acknowledge_inside_batches: `acknowledgmentAtBatchIndexLevelEnabled`. On, unlike Pulsar's default: a message
            that fails must not bring the rest of its batch again.
        failover_delay_s: `activeConsumerFailoverDelayTimeMillis`; the old active consumer's acknowledgements get this
            long to arrive.
        max_pending_publishes: `maxPendingPublishRequestsPerConnection`; above it the socket is not read, until half.
        max_pending_requests: requests in progress of one connection; above it the socket is not read.
        max_read_entries: `dispatcherMaxReadBatchSize`, entries per read of a subscription.
        max_read_bytes: bytes per read of a subscription.
        max_round_robin_entries: `dispatcherMaxRoundRobinBatchSize`, entries that a shared consumer gets in one go.
        max_unacked_per_consumer: `maxUnackedMessagesPerConsumer` of shared consumers; 0 is no limit.
        max_unacked_per_subscription: `maxUnackedMessagesPerSubscription`; 0 is no limit.
        write_buffer_bytes: bytes waiting for one socket at which its consumers get nothing more.
        unread_retention_s: how long entries of a topic without subscriptions stay where no retention is set. Pulsar
            keeps them as long, because it closes no ledger earlier (`managedLedgerMinLedgerRolloverTimeMinutes`).
        compaction_threshold_bytes: `brokerServiceCompactionThresholdInBytes`; a topic with more than that not compacted
            yet is compacted, where its namespace says nothing else. 0 compacts on request only.
        compaction_check_s: `brokerServiceCompactionMonitorIntervalInSeconds`; how often that is looked at.
        deduplication: `brokerDeduplicationEnabled`; for topics about which nothing is said, nor about their namespaces.
        deduplication_max_producers: `brokerDeduplicationMaxNumberOfProducers`; names without a producer that a topic
            remembers.
        deduplication_snapshot_entries: `brokerDeduplicationEntriesInterval`; entries that are read again when a topic
            is loaded, at most about.
        deduplication_snapshot_age_s: `brokerDeduplicationSnapshotIntervalSeconds`; the same as a time.
        deduplication_check_s: `brokerDeduplicationSnapshotFrequencyInSeconds`; how often that time is looked at.
        deduplication_inactivity_s: `brokerDeduplicationProducerInactivityTimeoutMinutes`; how long a name without a
            producer is remembered.
        stats_period_s: `statsUpdateFrequencyInSecs`; rates are averages over it, and trimming happens as often.
    """

    data_dir: Path = Path("data")
    host: str = "127.0.0.1"
    broker_port: int = 6650
    web_port: int = 8080
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
    unread_retention_s: float = 600.0
    compaction_threshold_bytes: int = 0
    compaction_check_s: float = 60.0
    deduplication: bool = False
    deduplication_max_producers: int = 10_000
    deduplication_snapshot_entries: int = 1000
    deduplication_snapshot_age_s: float = 120.0
    deduplication_check_s: float = 120.0
    deduplication_inactivity_s: float = 360 * 60.0
    stats_period_s: float = 60.0

    def __post_init__(self) -> None:
        """Check ranges, and that the metadata store's URL is one.

        Raises:
            InvalidConfig: names the setting and its range.
        """
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                raise InvalidConfig(f"{name}={value} is out of range; give {low:g} to {high:g}")
        parse_store_url(self.metadata_store_url)

    @property
    def max_frame_bytes(self) -> int:
        """Largest frame that the broker reads."""
        return self.max_message_bytes + FRAME_PADDING_BYTES

    @property
    def is_loopback(self) -> bool:
        """Whether clients elsewhere cannot reach `host`, so that they must stay on the address they came by."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("broker_port", 0, 65535),
    ("web_port", 0, 65535),
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
    ("unread_retention_s", 0, 1 << 31),
    ("compaction_threshold_bytes", 0, 1 << 62),
    ("compaction_check_s", 0.05, 86400),
    ("deduplication_max_producers", 1, 1_000_000),
    ("deduplication_snapshot_entries", 1, 1_000_000),
    ("deduplication_snapshot_age_s", 0, 86400),
    ("deduplication_check_s", 0.05, 86400),
    ("deduplication_inactivity_s", 1, 1 << 31),
    ("stats_period_s", 0.05, 86400),
)
