"""Translate a function's record into settings of its consumers and producers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from ..client.config import Compression, ConsumerConfig, ProducerConfig, SubscriptionType
from ..config.consumer_properties import read_consumer_properties
from ..config.function_config import KEY_BASED
from ..wire.functions_pb2 import ATMOST_ONCE, FAILOVER, KEY_SHARED, CompressionType, SourceSpec
from ..wire.functions_pb2 import EARLIEST as FROM_EARLIEST
from .spec import InstanceSpec

RECEIVER_QUEUE_SIZE = 4000  # Pulsar's 1000 is one batch: the next batch would be requested only after processing it

RECEIVER_QUEUE_BYTES = 32 * 1024 * 1024
"""Limit per input topic: Pulsar's 1000 messages of 1 MB each would take a gigabyte."""

ENTRY_MESSAGES_MAX = 1000
ENTRY_BYTES_MAX = 1024 * 1024  # larger outputs of one input entry are split into several entries
SHIP_AFTER_S = 0.010


@dataclass(frozen=True, slots=True)
class OutputBounds:
    """Limits of output entries and of messages in flight.

    Attributes:
        on_the_way: maximum messages in flight, in addition to one piece; None for the pipeline's limit.
        entry_messages: maximum number of messages per entry.
        entry_bytes: maximum payload size per entry, which a single message may exceed.
        delay_s: maximum time to collect the outputs of a unit.
    """

    on_the_way: int | None = None
    entry_messages: int = ENTRY_MESSAGES_MAX
    entry_bytes: int = ENTRY_BYTES_MAX
    delay_s: float = SHIP_AFTER_S

    def messages(self, most: int) -> int:
        """Return the maximum number of messages in flight, at most ``most``."""
        return most if self.on_the_way is None else min(most, self.on_the_way)


def subscription_of(spec: InstanceSpec) -> str:
    """Return the subscription name of all inputs: the configured one, or the function's name."""
    return spec.details.source.subscriptionName or spec.function_name


def acks_first(spec: InstanceSpec) -> bool:
    """Return whether messages are acknowledged before they are processed."""
    return spec.details.processingGuarantees == ATMOST_ONCE


def subscription_type(source: SourceSpec) -> SubscriptionType:
    """Return the subscription type of the inputs."""
    return (
        "Failover"
        if source.subscriptionType == FAILOVER
        else ("Key_Shared" if source.subscriptionType == KEY_SHARED else "Shared")
    )


def consumer_config(spec: InstanceSpec, topic: str) -> ConsumerConfig:
    """Return the consumer config of an input topic."""
    source = spec.details.source
    given = source.inputSpecs[topic]
    queue_size = given.receiverQueueSize.value if given.HasField("receiverQueueSize") else RECEIVER_QUEUE_SIZE
    config = ConsumerConfig(
        type=subscription_type(source),
        initial_position="Earliest" if source.subscriptionPosition == FROM_EARLIEST else "Latest",
        receiver_queue_size=queue_size,
        receiver_queue_bytes=RECEIVER_QUEUE_BYTES,
        ack_receipts=acks_first(spec),
        negative_ack_delay_ms=source.negativeAckRedeliveryDelayMs or ConsumerConfig().negative_ack_delay_ms,
        properties={"application": "pulsar-function", "id": spec.function_name, "instance_id": str(spec.instance_id)},
    )
    return replace(config, **read_consumer_properties(given.consumerProperties)) if given.consumerProperties else config


def producer_config() -> ProducerConfig:
    """Return the producer config of outputs.

    The pipeline's gate limits messages in flight. As in Pulsar's instances, sends do not time out: a broker that is
    unavailable for an hour must not cause failures of valid messages.
    """
    return ProducerConfig(max_pending_messages=2**31, max_pending_bytes=2**40, send_timeout_ms=0)


def output_bounds(spec: InstanceSpec) -> OutputBounds:
    """Return the output limits of the record's producerConfig."""
    producer = spec.details.sink.producerSpec
    given = [one for one in (producer.maxPendingMessages, producer.maxPendingMessagesAcrossPartitions) if one > 0]
    bounds = OutputBounds(on_the_way=min(given) if given else None)
    if not producer.HasField("batchingSpec"):
        return bounds
    batching = producer.batchingSpec
    return replace(
        bounds,
        entry_messages=min(batching.batchingMaxMessages or ENTRY_MESSAGES_MAX, ENTRY_MESSAGES_MAX)
        if batching.enabled
        else 1,
        entry_bytes=min(batching.batchingMaxBytes or ENTRY_BYTES_MAX, ENTRY_BYTES_MAX),
        delay_s=batching.batchingMaxPublishDelayMs / 1000 or SHIP_AFTER_S,
    )


def splits_keys(spec: InstanceSpec) -> bool:
    """Return whether each entry must contain messages of a single key."""
    producer = spec.details.sink.producerSpec
    return KEY_BASED in (producer.batchBuilder, producer.batchingSpec.batchBuilder)


def publishing_config(spec: InstanceSpec, compression: Compression) -> ProducerConfig:
    """Return the producer config of messages that the function publishes through its context."""
    producer, bounds, usual = spec.details.sink.producerSpec, output_bounds(spec), ProducerConfig()
    is_batching = not producer.HasField("batchingSpec") or producer.batchingSpec.enabled
    batching = producer.batchingSpec
    return replace(
        usual,
        compression=compression,
        send_timeout_ms=0,
        max_pending_messages=bounds.messages(usual.max_pending_messages),
        batching=is_batching,
        batching_type="KeyBased" if is_batching and splits_keys(spec) else "Default",
        batch_max_messages=batching.batchingMaxMessages or usual.batch_max_messages,
        batch_max_bytes=batching.batchingMaxBytes or usual.batch_max_bytes,
        batch_max_delay_ms=batching.batchingMaxPublishDelayMs or usual.batch_max_delay_ms,
    )


def compression_of(spec: InstanceSpec) -> Compression:
    """Return the compression of outputs; LZ4 by default, as in Pulsar's Python instance."""
    return cast(
        Compression, CompressionType.Name(spec.details.sink.producerSpec.compressionType)
    )  # Compression has the same names
