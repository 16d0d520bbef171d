"""Settings of producers, consumers and readers; those of clients are in `connections.config`.

Every field works; what is not supported yet is not here, so that nothing is accepted and ignored. Defaults are those
of Apache Pulsar's own clients unless a line says why not. Units are in the names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from ..errors import InvalidConfig
from .checks import (
    INT32_MAX,
    INT64_MAX,
    TEXT_BYTES_MAX,
    check_choice,
    check_least,
    check_name,
    check_range,
    check_text,
    check_texts,
)
from .connections.config import ClientConfig as ClientConfig  # all settings can be imported from here
from .outgoing_message import OutgoingMessage

if TYPE_CHECKING:
    from .connections.connection import Connection

SERVICE_BACKOFF_MAX_MS = 3_000
"""The longest wait before a retry in workers and instances: however long their broker was away, they are back so soon
after it. The default would have them stay away for up to a minute more, as long again as the broker was."""

Guard = Callable[["Connection"], Awaitable[None]]
"""Awaited with the connection before a producer or consumer attaches to it; what it raises fails the attempt."""
AccessMode = Literal["Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing"]
Compression = Literal["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"]
Routing = Literal["RoundRobin", "SinglePartition"]
Hashing = Literal["JavaStringHash", "Murmur3_32Hash", "BoostHash"]
SubscriptionType = Literal["Exclusive", "Failover", "Shared", "Key_Shared"]
InitialPosition = Literal["Latest", "Earliest"]


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """Settings of a producer.

    Attributes:
        name: unique on the topic; None lets the broker choose one.
        access_mode: who else may produce; ``WaitForExclusive`` waits without limit until nobody else does.
        compression: applied to a whole entry.
        batching: collect messages into entries. An entry is closed by whichever of the next three comes first.
        batch_max_messages: messages in an entry.
        batch_max_bytes: bytes of payload in an entry, before compression.
        batch_max_delay_ms: time since the first message of the entry.
        empty_deletes: an empty message removes its key from the compacted topic, as with Java clients. Off, one that
            is sent without batching stays there, empty as it is, as with C++ clients.
        max_pending_messages: messages sent but not yet stored. An entry is taken while the number is below this, so
            one entry may pass it.
        max_pending_bytes: bytes of those; bounds memory where messages are large.
        block_if_queue_full: `Producer.send` waits for room; otherwise it raises QueueFull.
        send_timeout_ms: everything pending fails when the oldest waits this long; 0 waits without limit.
        initial_sequence_id: of the first message; None continues after the broker's last.
        properties: shown in the topic's statistics.
        routing: how messages without a key are spread over partitions, or a function (message, partitions) -> index
            for all messages.
        hashing: how keys choose a partition; the choice of all producers of a topic must be the same. Java's default,
            as C++'s BoostHash depends on the platform.
        guard: awaited each time before the producer attaches to a connection, with it; `Lock.cover` for example.
    """

    name: str | None = None
    access_mode: AccessMode = "Shared"
    compression: Compression = "NONE"
    batching: bool = True
    batch_max_messages: int = 1000
    batch_max_bytes: int = 128 * 1024
    batch_max_delay_ms: float = 10.0
    empty_deletes: bool = True
    max_pending_messages: int = 1000
    max_pending_bytes: int = 64 * 1024 * 1024
    block_if_queue_full: bool = False
    send_timeout_ms: int = 30_000
    initial_sequence_id: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    routing: Routing | Callable[[OutgoingMessage, int], int] = "RoundRobin"
    hashing: Hashing = "JavaStringHash"
    guard: Guard | None = None

    def __post_init__(self) -> None:
        check_choice("access_mode", self.access_mode, get_args(AccessMode))
        check_choice("compression", self.compression, get_args(Compression))
        check_choice("hashing", self.hashing, get_args(Hashing))
        if isinstance(self.routing, str):
            check_choice("routing", self.routing, get_args(Routing))
        check_least("batch_max_messages", self.batch_max_messages, 1)
        check_least("batch_max_bytes", self.batch_max_bytes, 1)
        check_least("batch_max_delay_ms", self.batch_max_delay_ms, 0)
        check_least("max_pending_messages", self.max_pending_messages, 1)
        check_least("max_pending_bytes", self.max_pending_bytes, 1)
        check_least("send_timeout_ms", self.send_timeout_ms, 0)
        if self.initial_sequence_id is not None:
            check_range("initial_sequence_id", self.initial_sequence_id, 0, INT64_MAX)
        check_name(self.name, "let the broker choose a name")
        check_texts("properties", self.properties, TEXT_BYTES_MAX)


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """Settings of a consumer.

    Attributes:
        type: how consumers of one subscription share its messages.
        name: shown in statistics, and what Failover sorts by; None takes a random one.
        initial_position: where a new subscription begins; an existing one keeps its place.
        receiver_queue_size: messages that the broker may send ahead; 0 asks for one message at a time.
        receiver_queue_bytes: bytes that the broker may send ahead, about: where messages are large it is given fewer
            permits. 0 for no such bound, as in Pulsar.
        max_receiver_queue_size_across_partitions: bound of the sum over the partitions of a topic.
        ack_grouping_ms: acknowledgements are collected this long; 0 sends each at once.
        ack_grouping_max: acknowledgements that are collected at most.
        ack_receipts: acknowledging returns a future that completes when the broker has confirmed it.
        negative_ack_delay_ms: how long after `Consumer.negative_ack` a message is asked for again.
        priority_level: 0 is served first.
        read_compacted: read the compacted view of the topic (Exclusive and Failover only).
        properties: shown in the topic's statistics.
        subscription_properties: kept with the subscription if this consumer creates it.
        partition_update_s: how often new partitions of the topic are looked for; 0 never does.
        on_active_change: called on the event loop with True when this consumer begins to receive and with False when
            it ceases to (Failover and Exclusive); losing the connection counts as ceasing. With several topics or
            partitions it is called for each.
        guard: awaited each time before the consumer attaches to a connection, with it; `Lock.cover` for example.
    """

    type: SubscriptionType = "Exclusive"
    name: str | None = None
    initial_position: InitialPosition = "Latest"
    receiver_queue_size: int = 1000
    receiver_queue_bytes: int = 0
    max_receiver_queue_size_across_partitions: int = 50_000
    ack_grouping_ms: float = 100.0
    ack_grouping_max: int = 1000
    ack_receipts: bool = False
    negative_ack_delay_ms: int = 60_000
    priority_level: int = 0
    read_compacted: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    subscription_properties: Mapping[str, str] = field(default_factory=dict)
    partition_update_s: float = 60.0
    on_active_change: Callable[[bool], None] | None = None
    guard: Guard | None = None

    def __post_init__(self) -> None:
        check_choice("type", self.type, get_args(SubscriptionType))
        check_choice("initial_position", self.initial_position, get_args(InitialPosition))
        check_range("receiver_queue_size", self.receiver_queue_size, 0, INT32_MAX)
        check_least("receiver_queue_bytes", self.receiver_queue_bytes, 0)
        check_least("max_receiver_queue_size_across_partitions", self.max_receiver_queue_size_across_partitions, 1)
        check_least("ack_grouping_ms", self.ack_grouping_ms, 0)
        check_least("ack_grouping_max", self.ack_grouping_max, 1)
        check_least("negative_ack_delay_ms", self.negative_ack_delay_ms, 0)
        check_range("priority_level", self.priority_level, 0, INT32_MAX)
        check_least("partition_update_s", self.partition_update_s, 0)
        check_name(self.name, "take a random name")
        check_texts("properties", self.properties, TEXT_BYTES_MAX)
        check_texts("subscription_properties", self.subscription_properties, TEXT_BYTES_MAX)
        if self.read_compacted and self.type not in ("Exclusive", "Failover"):
            raise InvalidConfig(f"read_compacted needs type Exclusive or Failover, not {self.type}")


@dataclass(frozen=True, kw_only=True)
class ReaderConfig:
    """Settings of a reader.

    Attributes:
        name: shown in statistics; None takes a random one.
        start_inclusive: begin with the start message itself instead of the one after it.
        receiver_queue_size: messages that the broker may send ahead.
        read_compacted: read the compacted view of the topic.
        subscription_prefix: put before the random name of the reader's subscription, with a dash.
        properties: shown in the topic's statistics.
    """

    name: str | None = None
    start_inclusive: bool = False
    receiver_queue_size: int = 1000
    read_compacted: bool = False
    subscription_prefix: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_range("receiver_queue_size", self.receiver_queue_size, 0, INT32_MAX)
        check_name(self.name, "take a random name")
        check_text("subscription_prefix", self.subscription_prefix, TEXT_BYTES_MAX)
        check_texts("properties", self.properties, TEXT_BYTES_MAX)
