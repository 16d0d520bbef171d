"""A function's record translated into settings of its consumers and producer."""

from __future__ import annotations

from typing import cast

from ..client.config import Compression, ConsumerConfig, ProducerConfig
from ..wire.functions_pb2 import ATMOST_ONCE, FAILOVER, KEY_SHARED, CompressionType
from ..wire.functions_pb2 import EARLIEST as FROM_EARLIEST
from .spec import InstanceSpec

RECEIVER_QUEUE_SIZE = 4000  # Pulsar's 1000 is one batch: the next would be asked for only when it is processed

RECEIVER_QUEUE_BYTES = 32 * 1024 * 1024
"""Of each input topic; as many messages of 1 MB as Pulsar's 1000 would be a gigabyte."""


def subscription_of(spec: InstanceSpec) -> str:
    """Return the subscription of all inputs: the one given, or the function's name."""
    return spec.details.source.subscriptionName or spec.function_name


def acks_first(spec: InstanceSpec) -> bool:
    """Return whether messages are acknowledged before they are processed."""
    return spec.details.processingGuarantees == ATMOST_ONCE


def consumer_config(spec: InstanceSpec, topic: str) -> ConsumerConfig:
    """Return how an input topic is consumed."""
    source = spec.details.source
    given, kind = source.inputSpecs[topic], source.subscriptionType
    queue_size = given.receiverQueueSize.value if given.HasField("receiverQueueSize") else RECEIVER_QUEUE_SIZE
    return ConsumerConfig(
        type="Failover" if kind == FAILOVER else "Key_Shared" if kind == KEY_SHARED else "Shared",
        initial_position="Earliest" if source.subscriptionPosition == FROM_EARLIEST else "Latest",
        receiver_queue_size=queue_size,
        receiver_queue_bytes=RECEIVER_QUEUE_BYTES,
        ack_receipts=acks_first(spec),
        negative_ack_delay_ms=source.negativeAckRedeliveryDelayMs or ConsumerConfig().negative_ack_delay_ms,
        properties={"application": "pulsar-function", "id": spec.function_name, "instance_id": str(spec.instance_id)},
    )


def producer_config() -> ProducerConfig:
    """Return how outputs are produced.

    The pipeline's gate bounds what is on its way. Pulsar's instances wait without limit too: a broker that is away for
    an hour must not make failures of messages that are fine.
    """
    return ProducerConfig(max_pending_messages=2**31, max_pending_bytes=2**40, send_timeout_ms=0)


def compression_of(spec: InstanceSpec) -> Compression:
    """Return the compression of outputs: LZ4 unless another is asked for, as in Pulsar's Python instance."""
    return cast(Compression, CompressionType.Name(spec.details.sink.producerSpec.compressionType))  # the names are ours
