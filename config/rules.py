"""Validation rules of a FunctionConfig, in Pulsar's order and with Pulsar's messages.

Our own rules follow: settings not supported by this version are rejected by name, with advice. The message of a Pulsar
rule starts with Pulsar's own text, so that scripts that match it still work.
"""

from __future__ import annotations

import dataclasses
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from ..errors import InvalidConfig, InvalidTopicName
from ..wire.printable import printable
from ..wire.topic_name import TopicName, parse_topic_name
from .cron import read_cron
from .crypto_config import check_crypto
from .endpoint_rules import check_consumer_properties, check_pattern, check_producer, refused_of_exact, refused_of_spark
from .function_config import (
    ATLEAST_ONCE,
    ATMOST_ONCE,
    CORES_MIN,
    DEFAULT_ASYNC_CALLS,
    DEFAULT_CPU,
    DEFAULT_DISK_BYTES,
    DEFAULT_RAM_BYTES,
    EFFECTIVELY_ONCE,
    MANUAL,
    MAX_ASYNC_CALLS,
    MAX_PARALLELISM,
    MIN_RAM_BYTES,
    PROCESS,
    SPARK,
    BatchingConfig,
    ConsumerSpec,
    FunctionConfig,
    ProducerSpec,
    Resources,
)
from .schema_rules import check_schemas
from .sql_function import check_sql
from .table import fields_of

MAX_NAME_BYTES = 128
"""For tenant, namespace and name, which are part of file names, process titles, socket paths and consumer names."""
MAX_SUBSCRIPTION_BYTES = 1024
RESERVED_SUBSCRIPTIONS = ("pulsar.repl", "pulsar.dedup", "__compaction")
"""Prefixes of the broker's own cursors."""
MAX_PARTITIONS = 100_000
"""Maximum number of tasks in a Spark run. Each costs the driver a few milliseconds and some memory."""
MIN_RUN_TIME_LIMIT_MS = 100
"""Short stalls of the machine must not stop a process."""
MAX_RUN_TIME_LIMIT_MS = 24 * 3600 * 1000
MIN_INTERVAL_MS = 1000
"""Minimum interval between runs. Each takes the driver some tenths of a second."""
_INT32_MAX = (1 << 31) - 1
_C = TypeVar("_C")


class Named(Protocol):
    """A config with a name."""

    @property
    def tenant(self) -> str | None:
        """Tenant of the component."""

    @property
    def namespace(self) -> str | None:
        """Namespace of the component."""

    @property
    def name(self) -> str | None:
        """Name of the component."""


def with_defaults(config: _C) -> _C:
    """Return the config with all optional fields filled in."""
    values = {}
    for field in fields_of(type(config)):
        value = getattr(config, field.attribute)
        value = field.default if value in (None, "") else value
        values[field.attribute] = with_defaults(value) if dataclasses.is_dataclass(value) else value
    return dataclasses.replace(config, **values)  # type: ignore[type-var]


def overlay(existing: _C, sent: _C) -> _C:
    """Return the existing config with sent values replacing stored values. An empty string clears a value."""
    values = {field.attribute: getattr(sent, field.attribute) for field in fields_of(type(sent))}
    given = {name: None if value == "" else value for name, value in values.items() if value is not None}
    return dataclasses.replace(existing, **given)  # type: ignore[type-var]


def check_fixed(existing: _C, sent: _C) -> None:
    """Raise InvalidConfig if a fixed field would change."""
    for field in fields_of(type(sent)):
        value = getattr(sent, field.attribute)
        if field.fixed and value is not None and value != getattr(existing, field.attribute):
            raise InvalidConfig(field.fixed)


def refusals(config: object, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name of every unsupported setting in a config, with the reason."""
    for field in fields_of(type(config)):
        if field.refused and getattr(config, field.attribute):
            yield where + field.name, field.refused


def check(config: FunctionConfig) -> None:
    """Raise InvalidConfig for the first rule broken by a config with defaults."""
    _check_name(config)
    check_inputs(config.input_specs, "No input topic(s) specified for the function")
    if config.runtime is None:
        raise InvalidConfig("Function language runtime is either not set or cannot be determined")
    _check_topics(config)
    _check_numbers(config)
    _check_contradictions(config)
    _check_window(config)
    _check_python(config)
    if config.sql:
        check_sql(config)
    _check_spark(config)
    for name, reason in _unsupported(config):
        raise InvalidConfig(f"{name}: {reason}")


def check_name(config: Named, what: str) -> None:
    """Reject a missing tenant, namespace or component name, or a name that cannot be used in file names."""
    for part, text in (("Tenant", config.tenant), ("Namespace", config.namespace), (f"{what} name", config.name)):
        if not text:
            raise InvalidConfig(f"{part} is not provided")
        if (size := len(text.encode("utf-8", "replace"))) > MAX_NAME_BYTES:
            raise InvalidConfig(f"{part} {text[:40]!a} of {size} bytes exceeds the limit of {MAX_NAME_BYTES} bytes")
    name = config.name or ""
    if name in (".", "..") or "/" in name or ":" in name or not name.isprintable():
        raise InvalidConfig(f"invalid {what} name {name[:40]!a}: must contain only printable characters except / and :")


def check_subscription_name(name: str, field: str) -> None:
    """Reject an invalid subscription name, or one used by the broker itself."""
    if name.startswith(RESERVED_SUBSCRIPTIONS):
        raise InvalidConfig(f"{field} {name[:40]!a} is reserved for the broker: use another name")
    if _has_controls(name) or len(name.encode("utf-8", "replace")) > MAX_SUBSCRIPTION_BYTES:
        raise InvalidConfig(
            f"invalid {field} {name[:40]!a}: must have at most {MAX_SUBSCRIPTION_BYTES} bytes and no control characters"
        )


def _check_name(config: FunctionConfig) -> None:
    check_name(config, "Function")
    check_subscription_name(config.sub_name or "", "subName")
    fqfn = f"{config.tenant}/{config.namespace}/{config.name}"
    if config.sent_fqfn and config.sent_fqfn != fqfn:
        raise InvalidConfig(f"fqfn {config.sent_fqfn} does not match {fqfn}, the name in the request: remove fqfn")


def check_inputs(specs: Mapping[str, ConsumerSpec], no_input: str) -> None:
    """Reject missing inputs, invalid topics and duplicates."""
    if not specs:
        raise InvalidConfig(no_input)
    seen: dict[TopicName, str] = {}
    for topic, spec in specs.items():
        if spec.is_regex_pattern:
            check_pattern(topic)
            continue
        parsed = check_topic("Input", topic)
        if parsed in seen:
            raise InvalidConfig(f"Input topics {seen[parsed]} and {topic} are the same topic: remove one of them")
        seen[parsed] = topic


def _check_topics(config: FunctionConfig) -> None:
    named = [topic for topic, spec in config.input_specs.items() if not spec.is_regex_pattern]
    inputs = {parse_topic_name(topic) for topic in named}
    if config.output and check_topic("Output", config.output) in inputs:
        raise InvalidConfig(
            f"Output topic {config.output} is also being used as an input topic (topics must be one or the other)"
        )
    if config.log_topic:
        check_topic("LogTopic", config.log_topic)
    if config.dead_letter_topic:
        check_dead_letter_topic(config.dead_letter_topic, named)
    check_specs(config.input_specs)
    check_schemas(config)
    is_ordered = bool(config.retain_ordering) or config.processing_guarantees == EFFECTIVELY_ONCE
    check_consumer_properties(config.input_specs, is_ordered=is_ordered)
    check_producer(config.producer or ProducerSpec(), config.batch_builder)
    for name, secret in (config.secrets or {}).items():
        if not isinstance(secret, str | dict):
            raise InvalidConfig(f"secrets.{name} must be a string, or a JSON object with the location of the secret")


def check_dead_letter_topic(topic: str, inputs: Iterable[str]) -> None:
    """Reject an invalid dead-letter topic, or one that is an input, which would redeliver messages forever."""
    if check_topic("DeadLetter", topic) in {parse_topic_name(one) for one in inputs}:
        raise InvalidConfig(
            f"DeadLetter topic {topic} is also being used as an input topic (topics must be one or the other)"
        )


def check_specs(specs: Mapping[str, ConsumerSpec]) -> None:
    """Reject contradictory settings of inputs."""
    for topic, spec in specs.items():
        if spec.receiver_queue_size is not None and not 0 <= spec.receiver_queue_size <= _INT32_MAX:
            raise InvalidConfig("Receiver queue size should be >= zero")
        if spec.schema_type and spec.serde_class_name:
            raise InvalidConfig("Only one of schemaType or serdeClassName should be set in inputSpec")
        check_crypto(spec.crypto_config, f"inputSpecs[{topic}].cryptoConfig", is_of_producer=False)
    check_keys_of_letters(specs)


def check_keys_of_letters(specs: Mapping[str, ConsumerSpec]) -> None:
    """Reject inputs with different encryption keys, because their dead letters all go to one topic."""
    found: dict[tuple[object, ...], str] = {}
    for topic, spec in specs.items():
        crypto = spec.crypto_config
        if crypto is not None and crypto.encryption_keys:
            said = (crypto.key_reader, str(crypto.key_reader_config), crypto.encryption_keys, crypto.producer_action)
            found.setdefault(said, topic)
    if len(found) > 1:
        raise InvalidConfig(
            f"inputSpecs[…].cryptoConfig: the encryptionKeys of {' and '.join(sorted(found.values()))} differ, but "
            f"dead letters of all inputs are encrypted with the same keys: set the same keys, or set them for only one "
            f"input"
        )


def check_topic(what: str, text: str) -> TopicName:
    """Parse a topic name and reject invalid names."""
    try:
        name = parse_topic_name(text)
    except InvalidTopicName as exc:
        raise InvalidConfig(f"{what} topic {printable(text)} is invalid") from exc
    if name.local in (".", "..") or _has_controls(name.local):
        raise InvalidConfig(
            f"{what} topic {printable(text)} is invalid: must not be . or .. and must not contain control characters"
        )
    return name


def _has_controls(text: str) -> bool:
    return any(unicodedata.category(char) in ("Cc", "Cs") for char in text)


def check_amounts(parallelism: int, resources: Resources, what: str) -> None:
    """Reject invalid numbers of instances and resources per instance."""
    if parallelism <= 0:
        raise InvalidConfig(f"{what} parallelism must be a positive number")
    if parallelism > MAX_PARALLELISM:
        raise InvalidConfig(f"{what} parallelism {parallelism} exceeds the limit of {MAX_PARALLELISM} instances")
    for name, amount in (("cpu", resources.cpu), ("ram", resources.ram), ("disk", resources.disk)):
        if amount is not None and not amount > 0:
            raise InvalidConfig(f"The {name} allocation for the function must be positive")


def _check_numbers(config: FunctionConfig) -> None:
    check_amounts(config.parallelism or 0, config.resources or Resources(), "Function")
    if config.timeout_ms is not None and config.timeout_ms <= 0:
        raise InvalidConfig("Function timeout must be a positive number")
    for name, number in (("timeoutMs", config.timeout_ms), ("maxMessageRetries", config.max_message_retries)):
        if number is not None and number > _INT32_MAX:
            raise InvalidConfig(f"{name}: {number} exceeds the limit of {_INT32_MAX}")
    calls = config.max_pending_async_requests
    if calls is not None and not 1 <= calls <= MAX_ASYNC_CALLS:
        raise InvalidConfig(f"invalid maxPendingAsyncRequests {calls}: expected 1 to {MAX_ASYNC_CALLS}")
    limit_ms = config.run_time_limit_ms
    if limit_ms is not None and not MIN_RUN_TIME_LIMIT_MS <= limit_ms <= MAX_RUN_TIME_LIMIT_MS:
        raise InvalidConfig(
            f"invalid runTimeLimitMs {limit_ms}: expected {MIN_RUN_TIME_LIMIT_MS} to {MAX_RUN_TIME_LIMIT_MS}"
        )
    if limit_ms is not None and config.runtime_env not in (None, PROCESS):
        raise InvalidConfig(
            f"runTimeLimitMs is only supported with runtimeEnv process, not {config.runtime_env}: remove "
            f"runTimeLimitMs or runtimeEnv"
        )


def _check_contradictions(config: FunctionConfig) -> None:
    guarantees = config.processing_guarantees
    retries = config.max_message_retries
    if config.timeout_ms is not None and guarantees != ATLEAST_ONCE:
        raise InvalidConfig("Message timeout can only be specified with processing guarantee is ATLEAST_ONCE")
    if config.timeout_ms is not None and config.auto_ack is False:
        raise InvalidConfig(
            "timeoutMs has no effect with autoAck false, as unacknowledged messages are not redelivered automatically: "
            "remove timeoutMs"
        )
    if retries is not None and retries >= 0 and guarantees == EFFECTIVELY_ONCE:
        raise InvalidConfig("MaxMessageRetries and Effectively once don't gel well")
    if (retries is None or retries < 0) and config.dead_letter_topic:
        raise InvalidConfig("Dead Letter Topic specified, however max retries is set to infinity")
    if retries is not None and retries > 0 and guarantees == ATMOST_ONCE:
        raise InvalidConfig(
            f"maxMessageRetries {retries} with ATMOST_ONCE would process messages twice: set maxMessageRetries to 0, "
            f"which sends failed messages to deadLetterTopic, or use ATLEAST_ONCE"
        )
    if config.retain_ordering and config.retain_key_ordering:
        raise InvalidConfig("Only one of retain ordering or retain key ordering can be set")
    if config.retain_key_ordering and guarantees == EFFECTIVELY_ONCE:
        raise InvalidConfig(
            "When effectively once processing guarantee is specified, retain Key ordering cannot be set"
        )
    if config.auto_ack is False and guarantees == ATMOST_ONCE:
        raise InvalidConfig(
            "When Guarantees == ATMOST_ONCE, autoAck must be equal to true. This is a contradictory configuration,"
            " autoAck will be removed later. Please refer to PIP: https://github.com/apache/pulsar/issues/15560"
        )


def _check_window(config: FunctionConfig) -> None:
    window = config.window_config
    if window is None:
        return
    lengths = [window.get("windowLengthCount"), window.get("windowLengthDurationMs")]
    if all(length is None for length in lengths):
        raise InvalidConfig("Window length is not specified")
    if None not in lengths:
        raise InvalidConfig("Window length for time and count are set! Please set one or the other.")
    raise InvalidConfig("There is currently no support windowing in python: remove windowConfig")


def _check_python(config: FunctionConfig) -> None:
    for runtime, field in (("JAVA", "jar"), ("GO", "go")):
        if config.runtime == runtime:
            raise InvalidConfig(
                f"runtime {runtime} is not supported: remove {field} and runtime, and set py to a Python file"
            )
    if config.processing_guarantees == EFFECTIVELY_ONCE:
        _check_effectively_once(config)
    if not config.class_name:
        raise InvalidConfig("Function classname cannot be null")


def _check_effectively_once(config: FunctionConfig) -> None:
    if config.auto_ack is False:
        raise InvalidConfig(
            "When Guarantees == EFFECTIVELY_ONCE, autoAck must be equal to true: inputs are acknowledged with their "
            "outputs; use MANUAL to acknowledge them yourself"
        )
    if config.skip_to_latest:
        raise InvalidConfig(
            "skipToLatest is not supported with EFFECTIVELY_ONCE, as skipped inputs are not processed: remove "
            "skipToLatest, or use ATLEAST_ONCE"
        )
    for topic, spec in config.input_specs.items():
        if spec.is_regex_pattern:
            raise InvalidConfig(
                f"input {topic} is a pattern, which EFFECTIVELY_ONCE does not support: list the topics in inputs, or "
                f"use ATLEAST_ONCE"
            )
    for what in _non_persistent(config):
        raise InvalidConfig(
            f"{what} is non-persistent, which EFFECTIVELY_ONCE does not support: use a persistent topic or ATMOST_ONCE"
        )


def _check_spark(config: FunctionConfig) -> None:
    """Reject settings that do not apply to Spark functions, or apply only to Spark functions.

    A run reads the backlog and produces its outputs exactly once, even if the driver, executors or broker fail.
    """
    if config.runtime_env != SPARK:
        if config.min_partitions is not None:
            raise InvalidConfig(
                "minPartitions is only supported with runtimeEnv spark: remove minPartitions, or set parallelism"
            )
        for name in chosen_triggers(config):
            raise InvalidConfig(f"{name} is only supported with runtimeEnv spark: remove this field")
        return
    _check_triggers(config)
    if config.parallelism != 1:
        raise InvalidConfig(
            f"parallelism {config.parallelism} would run {config.parallelism} Spark drivers for the same messages: set "
            f"parallelism to 1, and set minPartitions for the number of tasks"
        )
    if config.min_partitions is not None:
        if not 1 <= config.min_partitions <= MAX_PARTITIONS:
            raise InvalidConfig(f"invalid minPartitions {config.min_partitions}: expected 1 to {MAX_PARTITIONS}")
        if config.retain_ordering:
            raise InvalidConfig(
                "minPartitions is not supported with retainOrdering, which processes each topic in one task: remove "
                "one of them"
            )
    if config.max_pending_async_requests not in (None, DEFAULT_ASYNC_CALLS):
        raise InvalidConfig(
            "maxPendingAsyncRequests is not supported with runtimeEnv spark, which does not run async functions: "
            "remove maxPendingAsyncRequests, or use runtimeEnv process"
        )
    if config.processing_guarantees in (ATMOST_ONCE, MANUAL):
        raise InvalidConfig(
            f"processingGuarantees {config.processing_guarantees} is not supported with runtimeEnv spark, whose "
            f"outputs are exactly once: remove processingGuarantees"
        )
    if config.auto_ack is False:
        raise InvalidConfig(
            "autoAck false is not supported with runtimeEnv spark, as runs acknowledge inputs once "
            "their outputs are stored: remove autoAck"
        )
    for name, value in (("secrets", config.secrets), ("exposePulsarAdminClientEnabled", config.expose_admin)):
        if value:
            raise InvalidConfig(f"{name} is not supported with runtimeEnv spark: remove this field")
    if config.skip_to_latest:
        raise InvalidConfig(
            "skipToLatest is not supported with runtimeEnv spark, as runs process the backlog: remove skipToLatest"
        )
    if config.retain_key_ordering:
        raise InvalidConfig(
            "retainKeyOrdering is not supported with runtimeEnv spark, as tasks run concurrently: "
            "remove retainKeyOrdering, or use retainOrdering"
        )
    if config.max_message_retries is not None and config.max_message_retries >= 0:
        raise InvalidConfig(
            "maxMessageRetries is not supported with runtimeEnv spark, as a run stops at a failing message and the "
            "next run starts with it: remove maxMessageRetries and deadLetterTopic"
        )
    if config.timeout_ms is not None:
        raise InvalidConfig(
            "timeoutMs is not supported with runtimeEnv spark, as runs do not redeliver messages: remove timeoutMs"
        )
    if config.log_topic:
        raise InvalidConfig("logTopic is not supported with runtimeEnv spark: remove logTopic, and use functions logs")
    for topic, spec in config.input_specs.items():
        if spec.is_regex_pattern:
            raise InvalidConfig(
                f"input {topic} is a pattern, which runtimeEnv spark does not support: list the topics in inputs"
            )
        if spec.receiver_queue_size is not None:
            raise InvalidConfig(
                f"inputSpecs[{topic}].receiverQueueSize: runs have no receiver queue; remove this field"
            )
        if spec.consumer_properties:
            raise InvalidConfig(f"inputSpecs[{topic}].consumerProperties: runs have no consumer; remove this field")
        if spec.crypto_config is not None:
            raise InvalidConfig(
                f"inputSpecs[{topic}].cryptoConfig: Spark runs do not support decryption; use runtimeEnv process"
            )
    for name, reason in refused_of_spark(config.producer or ProducerSpec()):
        raise InvalidConfig(f"{name}: {reason}")
    if config.batch_builder:
        raise InvalidConfig(
            "batchBuilder is not supported with runtimeEnv spark, as runs use fixed producer settings: "
            "remove batchBuilder"
        )
    for what in _non_persistent(config):
        raise InvalidConfig(
            f"{what} is non-persistent, which runtimeEnv spark does not support: use a persistent topic"
        )


def chosen_triggers(config: FunctionConfig) -> list[str]:
    """Return the fields that would trigger runs."""
    fields = {
        "cron": config.cron,
        "backlogTrigger": config.backlog_trigger,
        "continuousIntervalMs": config.continuous_interval_ms,
    }
    return [name for name, value in fields.items() if value]


def _check_triggers(config: FunctionConfig) -> None:
    chosen = chosen_triggers(config)
    if len(chosen) > 1:
        raise InvalidConfig(
            f"{chosen[1]} excludes {chosen[0]}, which already triggers runs: set only one of them, or clear one with "
            f"an empty string or 0"
        )
    if config.cron:
        read_cron(config.cron)
    for name, number, least in (
        ("backlogTrigger", config.backlog_trigger, 1),
        ("continuousIntervalMs", config.continuous_interval_ms, MIN_INTERVAL_MS),
    ):
        if number and not least <= number <= _INT32_MAX:
            raise InvalidConfig(f"invalid {name} {number}: expected {least} to {_INT32_MAX}, or 0 for none")


def _non_persistent(config: FunctionConfig) -> list[str]:
    """Return the non-persistent topics that a function reads or writes."""
    topics = [*(("input", topic) for topic in config.input_specs), ("output", config.output or "")]
    return [f"{what} topic {topic}" for what, topic in topics if topic.startswith("non-persistent://")]


def _unsupported(config: FunctionConfig) -> Iterator[tuple[str, str]]:
    """Yield the settings in the config that this version does not support."""
    yield from refusals(config)
    yield from unsupported_resources(config.resources or Resources(), config.runtime_env or PROCESS)
    for topic, spec in config.input_specs.items():
        yield from refusals(spec, f"inputSpecs[{topic}].")
    producer = config.producer or ProducerSpec()
    yield from refusals(producer, "producerConfig.")
    yield from refusals(producer.batching_config or BatchingConfig(), "producerConfig.batchingConfig.")
    if config.processing_guarantees == EFFECTIVELY_ONCE:
        yield from refused_of_exact(producer)
    yield from config.refused.items()


def unsupported_resources(resources: Resources, runtime: str) -> Iterator[tuple[str, str]]:
    """Yield the resource limits that are not enforced."""
    if resources.disk not in (None, DEFAULT_DISK_BYTES):
        yield "resources.disk", "disk limits are not enforced; remove this field"
    own_limits = f"limits are not enforced with runtimeEnv {runtime}; remove this field"
    cpu = resources.cpu
    if cpu not in (None, DEFAULT_CPU):
        if runtime != PROCESS:
            yield "resources.cpu", own_limits
        elif cpu is not None and not CORES_MIN <= cpu < math.inf:
            yield (
                "resources.cpu",
                f"{cpu:g} cores are invalid: expected at least {CORES_MIN}; increase the value, or remove this field",
            )
    ram = resources.ram
    if ram not in (None, DEFAULT_RAM_BYTES):
        if runtime != PROCESS:
            yield "resources.ram", own_limits
        elif ram is not None and ram < MIN_RAM_BYTES:
            yield (
                "resources.ram",
                f"{ram} bytes are less than the minimum of {MIN_RAM_BYTES}; increase the value, or remove this field",
            )
