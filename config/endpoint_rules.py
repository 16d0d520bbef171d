"""Validation rules for consumer and producer settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..errors import InvalidConfig, InvalidPattern, PatternNotSupported
from ..wire.printable import printable
from ..wire.topic_pattern import compile_pattern
from .consumer_properties import read_consumer_properties
from .crypto_config import check_crypto
from .function_config import BatchingConfig, ConsumerSpec, ProducerSpec

PATTERN_CHARACTERS_MAX = 1024
_INT32_MAX = (1 << 31) - 1


def check_consumer_properties(specs: Mapping[str, ConsumerSpec], *, is_ordered: bool) -> None:
    """Reject consumer properties that are unknown, duplicated, or unsupported.

    Args:
        specs: all inputs.
        is_ordered: whether each topic has one reader at a time.
    """
    for topic, spec in specs.items():
        where = f"inputSpecs[{topic}].consumerProperties"
        settings = read_consumer_properties(spec.consumer_properties, where)
        if "receiver_queue_size" in settings and spec.receiver_queue_size is not None:
            raise InvalidConfig(
                f"{where}.receiverQueueSize duplicates the field receiverQueueSize: set only one of them"
            )
        if settings.get("read_compacted") and not is_ordered:
            raise InvalidConfig(
                f"{where}.readCompacted requires retainOrdering, as compacted topics support only one reader"
            )


def check_pattern(text: str) -> None:
    """Reject a topic pattern that is invalid or cannot be matched in bounded time."""
    if len(text) > PATTERN_CHARACTERS_MAX:
        raise InvalidConfig(f"topicsPattern of {len(text)} characters exceeds the limit of {PATTERN_CHARACTERS_MAX}")
    try:
        compile_pattern(text)
        re.compile(text)
    except (InvalidPattern, PatternNotSupported, re.error) as error:
        raise InvalidConfig(f"invalid topicsPattern {printable(text)}: {error}") from error


def check_producer(spec: ProducerSpec, batch_builder: str | None = None) -> None:
    """Reject producer settings that are out of range or contradict each other.

    Args:
        spec: the producer settings.
        batch_builder: value of the separate field.
    """
    check_crypto(spec.crypto_config, "producerConfig.cryptoConfig", is_of_producer=True)
    numbers = {
        "maxPendingMessages": spec.max_pending_messages,
        "maxPendingMessagesAcrossPartitions": spec.max_pending_messages_across_partitions,
    }
    batching = spec.batching_config or BatchingConfig()
    numbers |= {
        "batchingConfig.batchingMaxPublishDelayMs": batching.max_publish_delay_ms,
        "batchingConfig.batchingMaxMessages": batching.max_messages,
        "batchingConfig.batchingMaxBytes": batching.max_bytes,
    }
    for name, number in numbers.items():
        if number is not None and not 0 <= number <= _INT32_MAX:
            raise InvalidConfig(f"invalid producerConfig.{name} {number}: expected 0 to {_INT32_MAX}")
    builders = {one for one in (spec.batch_builder, batching.batch_builder, batch_builder) if one}
    if len(builders) > 1:
        raise InvalidConfig(
            f"batchBuilder has conflicting values {' and '.join(sorted(builders))}: set only one of them"
        )


def refused_of_exact(spec: ProducerSpec) -> Iterator[tuple[str, str]]:
    """Yield the producer settings not supported with effectively once, with the reason."""
    batching = spec.batching_config or BatchingConfig()
    if batching.enabled is False or batching.max_publish_delay_ms or batching.max_messages or batching.max_bytes:
        yield (
            "producerConfig.batchingConfig",
            "with EFFECTIVELY_ONCE, the outputs of an input entry always form one entry; remove this field, or use "
            "ATLEAST_ONCE",
        )


def refused_of_source(spec: ProducerSpec) -> Iterator[tuple[str, str]]:
    """Yield the producer settings not supported by sources, with the reason."""
    why = "sources use fixed batching settings; remove this field"
    given = {
        "maxPendingMessages": spec.max_pending_messages,
        "maxPendingMessagesAcrossPartitions": spec.max_pending_messages_across_partitions,
        "useThreadLocalProducers": spec.use_thread_local_producers,
        "batchBuilder": spec.batch_builder,
        "batchingConfig": spec.batching_config,
    }
    yield from ((f"producerConfig.{name}", why) for name, value in given.items() if value)


def refused_of_spark(producer: ProducerSpec) -> Iterator[tuple[str, str]]:
    """Yield the producer settings not supported by Spark runs, with the reason."""
    for name, _ in refused_of_source(producer):
        yield name, "Spark runs use fixed producer settings; remove this field"
    if producer.crypto_config is not None:
        yield "producerConfig.cryptoConfig", "Spark runs do not support encryption; use runtimeEnv process"
