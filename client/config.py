"""Settings of producers, consumers and readers; client settings are in `connections.config`.

Every field is implemented; unsupported settings are not defined, so no setting is silently ignored. Defaults are those
of Apache Pulsar's clients unless documented otherwise. Names include the unit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from ..errors import InvalidConfig
from ..wire.topic_name import parse_topic_name
from .checks import (
    INT32_MAX,
    INT64_MAX,
    TEXT_BYTES_MAX,
    check_booleans,
    check_choice,
    check_integer,
    check_least,
    check_name,
    check_range,
    check_text,
    check_texts,
)
from .connections.config import ClientConfig as ClientConfig  # all settings can be imported from here
from .encryption.keys import CryptoKeyReader
from .interceptors import ConsumerInterceptor, ProducerInterceptor
from .outgoing_message import OutgoingMessage

if TYPE_CHECKING:
    from .connections.connection import Connection

SERVICE_BACKOFF_MAX_MS = 3_000
"""Maximum backoff of workers and instances, so that they reconnect within this time after any broker outage. With the
clients' default, reconnecting could take another minute, or as long as the outage lasted."""

KEY_SLOTS = 65536
"""Number of hash slots for keys; sticky ranges consist of these slots."""
DEFAULT_MAX_REDELIVER_COUNT = 16
"""Default redelivery limit of a consumer with ``retry_enable`` and no policy, as in Java and Go."""

OnUndecryptable = Callable[[str, tuple[int, int], str], float | None]
"""Called for each entry that cannot be decrypted, as described in `ConsumerConfig`."""
Guard = Callable[["Connection"], Awaitable[None]]
"""Awaited with the connection before a producer or consumer attaches to it; an exception fails the attempt."""
AccessMode = Literal["Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing"]
Compression = Literal["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"]
BatchingType = Literal["Default", "KeyBased"]
Routing = Literal["RoundRobin", "SinglePartition"]
Hashing = Literal["JavaStringHash", "Murmur3_32Hash", "BoostHash"]
KeySharedMode = Literal["AutoSplit", "Sticky"]
SubscriptionType = Literal["Exclusive", "Failover", "Shared", "Key_Shared"]
InitialPosition = Literal["Latest", "Earliest"]
ProducerCryptoFailureAction = Literal["FAIL", "SEND"]
ConsumerCryptoFailureAction = Literal["FAIL", "DISCARD", "CONSUME"]
RegexSubscriptionMode = Literal["PersistentOnly", "NonPersistentOnly", "AllTopics"]


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """Settings of a producer.

    Attributes:
        name: unique on the topic; None lets the broker generate one.
        access_mode: which other producers are allowed. ``WaitForExclusive`` waits, without a timeout, for other
            producers to leave.
        compression: compression of whole entries.
        batching: collect messages into entries. An entry is sent when one of the next three limits is reached.
        batching_type: ``KeyBased`` gives each key its own entry, as Key_Shared subscriptions require: brokers route an
            entry by its first key. Sequence ids are then assigned when a batch is closed, key by key.
        batch_max_messages: messages in an entry; with KeyBased, counted across all keys, as in Pulsar's clients.
        batch_max_bytes: payload bytes in an entry, before compression.
        batch_max_delay_ms: time since the first message of the entry. An entry that holds a message of an awaited
            `send` is sent earlier, once the producer has no other entry in flight.
        empty_deletes: whether an empty message removes its key from the compacted topic on every broker. Without it,
            Apache Pulsar up to 4.0.7 keeps empty messages sent without batching; our broker and later versions of
            Pulsar remove the key either way.
        max_pending_messages: messages sent but not yet stored. An entry is accepted while the count is below the
            limit, so one entry may exceed it.
        max_pending_bytes: bytes of pending messages; bounds memory where messages are large.
        block_if_queue_full: `Producer.send` waits for room; otherwise it raises QueueFull.
        send_timeout_ms: fail all pending messages once the oldest has waited this long; 0 disables the timeout.
        initial_sequence_id: sequence id of the first message; None continues after the last one stored by the broker.
        properties: shown in the topic's statistics.
        routing: how messages without a key are spread over partitions, or a function (message, partitions) -> index for
            all messages.
        hashing: how keys choose a partition; all producers of a topic must use the same. The default is Java's, as
            C++'s BoostHash depends on the platform.
        guard: awaited with the connection before each time the producer attaches to it, for example `Lock.cover`.
        initial_subscription_name: subscription to create with the producer if it does not exist, so that messages are
            retained until the first consumer subscribes.
        partition_update_s: interval for discovering new partitions; 0 disables it.
        lazy_start_partitioned_producers: create each partition's producer when it is first used. One is created
            immediately to detect errors early.
        interceptors: called in order for each message before it is sent, and after the broker's response.
        chunking_enabled: split messages above the broker's size limit into chunks, which consumers reassemble; requires
            ``batching`` to be off.
        encryption_keys: names of the public keys to encrypt messages with; any one of their private keys can decrypt.
            Keys, properties and other metadata are not encrypted.
        crypto_key_reader: loads the keys, for example `FileKeyReader`.
        crypto_failure_action: what happens if a key is missing: creating the producer fails (FAIL), or messages are
            sent unencrypted (SEND).
    """

    name: str | None = None
    access_mode: AccessMode = "Shared"
    compression: Compression = "NONE"
    batching: bool = True
    batching_type: BatchingType = "Default"
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
    initial_subscription_name: str | None = None
    partition_update_s: float = 60.0
    lazy_start_partitioned_producers: bool = False
    interceptors: Sequence[ProducerInterceptor] = ()
    chunking_enabled: bool = False
    encryption_keys: Sequence[str] = ()
    crypto_key_reader: CryptoKeyReader | None = None
    crypto_failure_action: ProducerCryptoFailureAction = "FAIL"

    def __post_init__(self) -> None:
        check_booleans(self)
        check_choice("access_mode", self.access_mode, get_args(AccessMode))
        check_choice("compression", self.compression, get_args(Compression))
        check_choice("batching_type", self.batching_type, get_args(BatchingType))
        if self.batching_type == "KeyBased" and not self.batching:
            raise InvalidConfig("batching_type 'KeyBased' requires batching=True")
        check_choice("hashing", self.hashing, get_args(Hashing))
        if isinstance(self.routing, str):
            check_choice("routing", self.routing, get_args(Routing))
        check_least("batch_max_messages", self.batch_max_messages, 1)
        check_least("batch_max_bytes", self.batch_max_bytes, 1)
        check_least("batch_max_delay_ms", self.batch_max_delay_ms, 0)
        check_least("max_pending_messages", self.max_pending_messages, 1)
        check_least("max_pending_bytes", self.max_pending_bytes, 1)
        check_least("send_timeout_ms", self.send_timeout_ms, 0)
        check_least("partition_update_s", self.partition_update_s, 0)
        if self.chunking_enabled and self.batching:
            raise InvalidConfig("chunking_enabled requires batching=False: chunks cannot be batched")
        if self.lazy_start_partitioned_producers and self.access_mode != "Shared":
            raise InvalidConfig(
                f"lazy_start_partitioned_producers requires access_mode 'Shared', not {self.access_mode!r}:"
                " another producer could claim the topic before the first message"
            )
        if self.initial_sequence_id is not None:
            check_range("initial_sequence_id", self.initial_sequence_id, 0, INT64_MAX)
        check_name(self.name, "let the broker choose a name")
        if self.initial_subscription_name is not None:
            check_text("initial_subscription_name", self.initial_subscription_name, TEXT_BYTES_MAX)
        check_texts("properties", self.properties, TEXT_BYTES_MAX)
        check_choice("crypto_failure_action", self.crypto_failure_action, get_args(ProducerCryptoFailureAction))
        if isinstance(self.encryption_keys, str):
            raise InvalidConfig(f"invalid encryption_keys {self.encryption_keys!r}: expected a list of names")
        for name in self.encryption_keys:
            check_text("encryption_keys", name, TEXT_BYTES_MAX)
        if bool(self.encryption_keys) != (self.crypto_key_reader is not None):
            raise InvalidConfig("encryption_keys and crypto_key_reader must be set together")


@dataclass(frozen=True, kw_only=True)
class ConsumerDeadLetterPolicy:
    """Dead letter policy of a subscription.

    Attributes:
        max_redeliver_count: maximum number of redeliveries. When another one is requested, the message is sent to the
            dead letter topic and acknowledged. With `Consumer.reconsume_later`, the number of times a message passes
            through the retry topic.
        dead_letter_topic: None for ``<topic>-<subscription>-DLQ``, where the topic is the partition of a partitioned
            topic; with ``retry_enable`` it is the consumer's first topic, as in Java. A slash in the subscription name
            is URL-encoded.
        retry_letter_topic: None for ``<topic>-<subscription>-RETRY``, derived from the first topic in the same way.
        initial_subscription_name: a subscription to create on the dead letter topic before its first message, so that
            dead letters are retained until they are read; or None.
        producer: settings of the producers for both topics; they never batch, regardless of ``batching``.
    """

    max_redeliver_count: int = DEFAULT_MAX_REDELIVER_COUNT
    dead_letter_topic: str | None = None
    retry_letter_topic: str | None = None
    initial_subscription_name: str | None = None
    producer: ProducerConfig | None = None

    def __post_init__(self) -> None:
        check_integer("max_redeliver_count", self.max_redeliver_count, 1, INT32_MAX)
        for name in ("dead_letter_topic", "retry_letter_topic", "initial_subscription_name"):
            text = getattr(self, name)
            if text is None:
                continue
            check_text(name, text, TEXT_BYTES_MAX)
            if not text:
                raise InvalidConfig(f"{name} is empty: omit it")
            if name.endswith("_topic"):
                parse_topic_name(text)
        if self.producer is not None and self.producer.interceptors:
            raise InvalidConfig("a letter producer does not support interceptors: omit interceptors from its config")


@dataclass(frozen=True, kw_only=True)
class ConsumerKeySharedPolicy:
    """How the consumers of a Key_Shared subscription share keys; all of them must use the same policy.

    Attributes:
        key_shared_mode: with ``AutoSplit`` the broker assigns keys; with ``Sticky`` each consumer chooses its ranges.
        sticky_ranges: pairs of first and last slot, within 0 to 65535; a key's slot is its Murmur3 hash modulo 65536.
        allow_out_of_order_delivery: a key may move to another consumer before its delivered messages are acknowledged.
    """

    key_shared_mode: KeySharedMode = "AutoSplit"
    sticky_ranges: Sequence[tuple[int, int]] = ()
    allow_out_of_order_delivery: bool = False

    def __post_init__(self) -> None:
        check_booleans(self)
        check_choice("key_shared_mode", self.key_shared_mode, get_args(KeySharedMode))
        if (self.key_shared_mode == "Sticky") != bool(self.sticky_ranges):
            raise InvalidConfig("sticky_ranges must be set if and only if key_shared_mode is 'Sticky'")
        end = -1
        for pair in sorted(self.sticky_ranges):
            first, last = pair
            check_integer("sticky_ranges", first, 0, KEY_SLOTS - 1)
            check_integer("sticky_ranges", last, 0, KEY_SLOTS - 1)
            if first > last or first <= end:
                raise InvalidConfig(f"invalid sticky_ranges {list(self.sticky_ranges)}: reversed or overlapping range")
            end = last


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """Settings of a consumer.

    Attributes:
        type: how the consumers of one subscription share its messages.
        name: shown in statistics; Failover orders consumers by it. None generates a random name.
        initial_position: start position of a new subscription; an existing one keeps its position.
        receiver_queue_size: number of messages that the broker may send ahead; 0 requests one message at a time.
        receiver_queue_bytes: approximate number of bytes that the broker may send ahead; fewer messages are requested
            if they are large. 0 means no limit, as in Pulsar; has no effect on non-persistent topics.
        max_receiver_queue_size_across_partitions: total limit across the queues of a topic's partitions.
        ack_grouping_ms: how long acknowledgements are buffered; 0 sends each immediately.
        ack_grouping_max: maximum number of buffered acknowledgements.
        ack_receipts: acknowledging returns a future that completes when the broker has confirmed it.
        negative_ack_delay_ms: delay between `Consumer.negative_ack` and the redelivery of the message.
        priority_level: consumers with lower levels are served first.
        read_compacted: read the compacted topic (Exclusive and Failover only).
        properties: shown in the topic's statistics.
        subscription_properties: stored with the subscription if this consumer creates it.
        replicate_subscription_state_enabled: request replication of the subscription's position to other clusters; our
            broker stores and shows the request, but does not replicate.
        partition_update_s: interval for discovering new partitions; 0 disables it.
        pattern_update_s: interval for discovering topics that match a pattern, in addition to notifications from
            brokers that support them; 0 disables it. Pulsar's clients call it the pattern auto discovery period.
        regex_subscription_mode: whether a pattern matches persistent topics, non-persistent topics or both; brokers
            only notify about persistent ones.
        on_active_change: called on the event loop with True when this consumer becomes active, and with False when it
            becomes inactive (Failover and Exclusive) or its connection is lost. With several topics or partitions it is
            called for each.
        guard: awaited with the connection before each time the consumer attaches to it, for example `Lock.cover`.
        unacked_messages_timeout_ms: redeliver messages that are not acknowledged within this time after delivery; 0
            disables redelivery by timeout.
        ack_timeout_tick_ms: precision of that timeout: redelivery may be late by up to this time.
        dead_letter_policy: when to send a message to a dead letter topic, and to which. Requires Shared or Key_Shared,
            for which brokers count redeliveries, or ``retry_enable``.
        key_shared_policy: how keys are shared (Key_Shared only); None lets the broker assign them.
        retry_enable: also consume the retry letter topic, to which `Consumer.reconsume_later` sends.
        interceptors: called in order for each message before the application receives it, and for its
            acknowledgements.
        joins_chunks: `Consumer.receive_entry` and `Consumer.poll_entry` join chunks into one entry, as
            `Consumer.receive` always does.
        max_pending_chunked_message: maximum number of incomplete chunked messages; beyond it the oldest is dropped.
        auto_ack_oldest_chunked_message_on_queue_full: acknowledge the chunks of a message dropped for that reason;
            otherwise they are redelivered after ``negative_ack_delay_ms``.
        expire_time_of_incomplete_chunked_message_ms: drop a message that has been incomplete for this long, and
            acknowledge its chunks; 0 disables it.
        max_chunked_message_bytes: size limit of a chunked message; larger ones are dropped.
        crypto_key_reader: loads the private keys for encrypted messages, for example `FileKeyReader`. Dead letters and
            retry letters are encrypted only if ``producer`` of the dead letter policy also has keys.
        crypto_failure_action: what happens to an entry that cannot be decrypted. FAIL: it is not received, and is
            redelivered after ``negative_ack_delay_ms``; DISCARD: it is acknowledged; CONSUME: it is received as one
            encrypted message, with the encryption metadata in its entry.
        on_undecryptable: called on the event loop, instead of logging, for each entry that is not received because it
            cannot be decrypted, with the topic, the position (ledger, entry) and the reason. With FAIL it returns the
            seconds until redelivery, or None to stop the consumer at that entry; receiving then raises CryptoError.
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
    replicate_subscription_state_enabled: bool = False
    partition_update_s: float = 60.0
    pattern_update_s: float = 60.0
    regex_subscription_mode: RegexSubscriptionMode = "PersistentOnly"
    on_active_change: Callable[[bool], None] | None = None
    guard: Guard | None = None
    unacked_messages_timeout_ms: int = 0
    ack_timeout_tick_ms: int = 1000
    dead_letter_policy: ConsumerDeadLetterPolicy | None = None
    key_shared_policy: ConsumerKeySharedPolicy | None = None
    retry_enable: bool = False
    interceptors: Sequence[ConsumerInterceptor] = ()
    joins_chunks: bool = False
    max_pending_chunked_message: int = 10
    auto_ack_oldest_chunked_message_on_queue_full: bool = False
    expire_time_of_incomplete_chunked_message_ms: int = 60_000
    max_chunked_message_bytes: int = 256 * 1024 * 1024
    crypto_key_reader: CryptoKeyReader | None = None
    crypto_failure_action: ConsumerCryptoFailureAction = "FAIL"
    on_undecryptable: OnUndecryptable | None = None

    def __post_init__(self) -> None:
        check_booleans(self)
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
        check_least("pattern_update_s", self.pattern_update_s, 0)
        check_choice("crypto_failure_action", self.crypto_failure_action, get_args(ConsumerCryptoFailureAction))
        check_choice("regex_subscription_mode", self.regex_subscription_mode, get_args(RegexSubscriptionMode))
        check_name(self.name, "use a random name")
        check_texts("properties", self.properties, TEXT_BYTES_MAX)
        check_texts("subscription_properties", self.subscription_properties, TEXT_BYTES_MAX)
        if self.key_shared_policy is not None and self.type != "Key_Shared":
            raise InvalidConfig(f"key_shared_policy requires type 'Key_Shared', not {self.type!r}")
        if self.read_compacted and self.type not in ("Exclusive", "Failover"):
            raise InvalidConfig(f"read_compacted requires type 'Exclusive' or 'Failover', not {self.type!r}")
        check_least("max_pending_chunked_message", self.max_pending_chunked_message, 1)
        check_least(
            "expire_time_of_incomplete_chunked_message_ms", self.expire_time_of_incomplete_chunked_message_ms, 0
        )
        check_least("max_chunked_message_bytes", self.max_chunked_message_bytes, 1)
        check_least("unacked_messages_timeout_ms", self.unacked_messages_timeout_ms, 0)
        check_least("ack_timeout_tick_ms", self.ack_timeout_tick_ms, 1)
        if 0 < self.unacked_messages_timeout_ms < self.ack_timeout_tick_ms:
            raise InvalidConfig(
                f"unacked_messages_timeout_ms={self.unacked_messages_timeout_ms} is less than"
                f" ack_timeout_tick_ms={self.ack_timeout_tick_ms}: shorten the tick"
            )
        if self.dead_letter_policy is not None and not self.retry_enable and self.type in ("Exclusive", "Failover"):
            raise InvalidConfig(
                f"dead_letter_policy has no effect with type {self.type!r}: brokers do not count its redeliveries;"
                " use 'Shared' or 'Key_Shared', or retry_enable with reconsume_later"
            )


@dataclass(frozen=True, kw_only=True)
class ReaderConfig:
    """Settings of a reader.

    Attributes:
        name: shown in statistics; None generates a random name.
        start_inclusive: start at the start message instead of after it.
        receiver_queue_size: number of messages that the broker may send ahead.
        read_compacted: read the compacted view of the topic.
        subscription_prefix: prefix of the subscription's random name, followed by a dash.
        subscription_name: name of the reader's subscription, instead of a random one.
        properties: shown in the topic's statistics.
        crypto_key_reader: same as for a consumer.
        crypto_failure_action: same as for a consumer.
        on_undecryptable: same as for a consumer.
    """

    name: str | None = None
    start_inclusive: bool = False
    receiver_queue_size: int = 1000
    read_compacted: bool = False
    subscription_prefix: str = ""
    subscription_name: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    crypto_key_reader: CryptoKeyReader | None = None
    crypto_failure_action: ConsumerCryptoFailureAction = "FAIL"
    on_undecryptable: OnUndecryptable | None = None

    def __post_init__(self) -> None:
        check_booleans(self)
        check_choice("crypto_failure_action", self.crypto_failure_action, get_args(ConsumerCryptoFailureAction))
        check_range("receiver_queue_size", self.receiver_queue_size, 0, INT32_MAX)
        check_name(self.name, "use a random name")
        check_text("subscription_prefix", self.subscription_prefix, TEXT_BYTES_MAX)
        if self.subscription_name is not None:
            check_text("subscription_name", self.subscription_name, TEXT_BYTES_MAX)
            if not self.subscription_name or self.subscription_prefix:
                raise InvalidConfig("subscription_name must not be empty or combined with subscription_prefix")
        check_texts("properties", self.properties, TEXT_BYTES_MAX)
