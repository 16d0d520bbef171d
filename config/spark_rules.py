"""What a function may ask for that runs as Spark jobs, and what it may not.

A run reads the backlog and gives its outputs exactly once, whatever happens to driver, executors and broker; what makes
no sense beside that is refused by name, with the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import InvalidConfig
from .function_config import ATMOST_ONCE, MANUAL, SPARK, FunctionConfig

MAX_PARTITIONS = 100_000
"""Tasks of one run; each costs the driver some milliseconds and memory."""


def check_spark(config: FunctionConfig) -> None:
    """Raise InvalidConfig with the first rule for Spark functions that a config with defaults breaks."""
    for name, reason in _refused(config) if config.runtime_env == SPARK else _refused_elsewhere(config):
        raise InvalidConfig(f"{name}: {reason}")


def _refused_elsewhere(config: FunctionConfig) -> Iterator[tuple[str, str]]:
    if config.min_partitions is not None:
        yield "minPartitions", "it is for runtimeEnv spark; leave it out, or set parallelism"


def _refused(config: FunctionConfig) -> Iterator[tuple[str, str]]:
    if config.parallelism != 1:
        yield (
            "parallelism",
            (
                f"{config.parallelism} instances of a Spark function would be {config.parallelism} drivers for the same"
                " messages; leave it at 1 and set minPartitions, the number of tasks"
            ),
        )
    if config.min_partitions is not None:
        if not 1 <= config.min_partitions <= MAX_PARTITIONS:
            yield "minPartitions", f"{config.min_partitions} is not between 1 and {MAX_PARTITIONS}"
        if config.retain_ordering:
            yield (
                "minPartitions",
                ("with retainOrdering each topic is one task, for tasks run side by side; leave one of the two out"),
            )
    if config.processing_guarantees in (ATMOST_ONCE, MANUAL):
        yield (
            "processingGuarantees",
            (
                f"{config.processing_guarantees} is not for runtimeEnv spark, whose outputs are there exactly"
                " once; leave it out"
            ),
        )
    if config.auto_ack is False:
        yield "autoAck", "a run acknowledges what it has read when its outputs are stored; leave it out"
    if config.log_topic:
        yield "logTopic", "it is not supported with runtimeEnv spark; leave it out and use functions logs"
    for topic, spec in config.input_specs.items():
        if spec.is_regex_pattern:
            yield (
                f"input {topic}",
                "it is a pattern, and a run plans topics by their names; give them with inputs, one after the other",
            )
        if spec.receiver_queue_size is not None:
            yield f"inputSpecs[{topic}].receiverQueueSize", "a run has no receiver queue; leave it out"
    for what, topic in (*(("input", topic) for topic in config.input_specs), ("output", config.output or "")):
        if topic.startswith("non-persistent://"):
            yield (
                f"{what} topic {topic}",
                "it keeps nothing that a later run could read or check; use a persistent topic",
            )
