"""The requested configuration of a function: `FunctionConfig` and its nested values, as a table of fields.

JSON becomes a frozen `FunctionConfig` (`conversion`), in which None always means "not sent". Registration fills in the
defaults and checks the rules (`rules`). An update first merges the sent fields into the stored fields. The result
becomes the `FunctionDetails` in the metadata topic (`conversion`), from which `get` responds. A setting that this
version does not support is rejected by name; no setting is accepted and ignored.

A new field requires a row here and the code that uses it. Flags, parsing, record, JSON, updates and the table in
``docs/reference/function-config.md`` are derived from the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from .crypto_config import CryptoConfig
from .table import (
    CLEARABLE_TEXT,
    DURATION_MS,
    FLAG,
    INTEGER,
    NUMBER,
    OBJECT,
    SIZE_BYTES,
    SWITCH,
    TEXT,
    TEXT_MAP,
    TEXTS,
    Field,
    by_name,
    fields_of,
    map_of,
    nested,
    one_of,
    option,
    with_flags,
)

ATLEAST_ONCE = "ATLEAST_ONCE"
ATMOST_ONCE = "ATMOST_ONCE"
EFFECTIVELY_ONCE = "EFFECTIVELY_ONCE"
MANUAL = "MANUAL"
GUARANTEES = (ATLEAST_ONCE, ATMOST_ONCE, EFFECTIVELY_ONCE, MANUAL)
POSITIONS = ("Latest", "Earliest")
PROCESS = "process"
SPARK = "spark"
RUNTIME_ENVIRONMENTS = (PROCESS, "thread", SPARK)
COMPRESSIONS = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")

BATCH_BUILDERS = ("DEFAULT", "KEY_BASED")
KEY_BASED = BATCH_BUILDERS[1]

DEFAULT_COMPRESSION = "LZ4"
DEFAULT_CPU = 1.0
"""Pulsar's default, which means no limit here: an instance may use all cores of the machine."""
CORES_MIN = 0.01
"""The kernel's limit: one millisecond per tenth of a second."""
DEFAULT_RAM_BYTES = 1 << 30
MIN_RAM_BYTES = 32 << 20
DEFAULT_DISK_BYTES = 10 << 30
DEFAULT_ASYNC_CALLS = 1000
MAX_ASYNC_CALLS = 20_000
"""The maximum number of messages that an instance can hold."""
MAX_PARALLELISM = 1000
"""Maximum number of instances of a function, so that a typo cannot start ten thousand processes."""

NOT_YET = "not supported yet; remove this field"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec:
    """Consumer settings of one input topic."""

    schema_type: str | None = option(
        "schemaType", TEXT, "Schema type or schema class of the topic.", record="schemaType"
    )
    serde_class_name: str | None = option("serdeClassName", TEXT, "SerDe for the inputs.", record="serdeClassName")
    schema_properties: Mapping[str, str] = option(
        "schemaProperties", TEXT_MAP, "Schema properties.", unset={}, record="schemaProperties"
    )
    consumer_properties: Mapping[str, str] = option(
        "consumerProperties", TEXT_MAP, "Consumer settings by their Java names, as strings.",
        unset={}, record="consumerProperties",
    )  # fmt: skip
    receiver_queue_size: int | None = option(
        "receiverQueueSize",
        INTEGER._replace(store=lambda size: {"value": size}, load=lambda message: message.value),
        "Maximum number of prefetched messages.",
        record="receiverQueueSize",
    )
    crypto_config: CryptoConfig | None = option(  # noqa: RUF009  it makes a field()
        "cryptoConfig", nested(CryptoConfig), "Keys for decrypting messages.", record="cryptoSpec"
    )
    pool_messages: bool = option(
        "poolMessages", FLAG, "Reuse of Java buffers.",
        unset=False, record="poolMessages", refused="Python has no buffer pools; remove this field",
    )  # fmt: skip
    payload_processor: Mapping[str, Any] | None = option(
        "messagePayloadProcessorConfig", OBJECT, "Reader for other entry formats.",
        refused="only Pulsar's own entry format is supported, and Java classes cannot be loaded; remove this field",
    )  # fmt: skip
    is_regex_pattern: bool = option(
        "regexPattern", FLAG, "Whether the name is a topic pattern.",
        alias="isRegexPattern", unset=False, record="isRegexPattern",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingConfig:
    """Limits of the entries for outputs and for messages sent by `Context.publish`."""

    enabled: bool | None = option(
        "enabled", FLAG, "Whether messages are batched into entries.", default=True, record="enabled"
    )
    max_publish_delay_ms: int | None = option(
        "batchingMaxPublishDelayMs", INTEGER, "Maximum delay for batching messages into an entry, in ms.",
        record="batchingMaxPublishDelayMs",
    )  # fmt: skip
    round_robin_frequency: int | None = option(
        "roundRobinRouterBatchingPartitionSwitchFrequency", INTEGER, "How often to switch partitions.",
        record="roundRobinRouterBatchingPartitionSwitchFrequency",
        refused="partitions are switched after each entry; remove this field",
    )  # fmt: skip
    max_messages: int | None = option(
        "batchingMaxMessages", INTEGER, "Maximum messages per entry, up to 1000.", record="batchingMaxMessages"
    )
    max_bytes: int | None = option(
        "batchingMaxBytes", INTEGER, "Maximum bytes per entry, up to 1 MiB; a larger message gets its own entry.",
        record="batchingMaxBytes",
    )  # fmt: skip
    batch_builder: str | None = option(
        "batchBuilder", one_of(*BATCH_BUILDERS)._replace(load=lambda text: text or None),
        "Same as producerConfig.batchBuilder.",
        record="batchBuilder",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSpec:
    """Producer settings of the output topic."""

    max_pending_messages: int | None = option(
        "maxPendingMessages", INTEGER, "Maximum messages in flight per instance, plus one additional entry.",
        record="maxPendingMessages",
    )  # fmt: skip
    max_pending_messages_across_partitions: int | None = option(
        "maxPendingMessagesAcrossPartitions", INTEGER, "Maximum messages in flight for all partitions; the smaller "
        "limit applies.",
        record="maxPendingMessagesAcrossPartitions",
    )  # fmt: skip
    use_thread_local_producers: bool = option(
        "useThreadLocalProducers", FLAG, "Whether each publishing thread has separate producers.",
        unset=False, record="useThreadLocalProducers",
    )  # fmt: skip
    crypto_config: CryptoConfig | None = option(  # noqa: RUF009  it makes a field()
        "cryptoConfig", nested(CryptoConfig), "Keys for encrypting outgoing messages.", record="cryptoSpec"
    )
    batch_builder: str = option(
        "batchBuilder", one_of(*BATCH_BUILDERS)._replace(load=str),
        "DEFAULT; or KEY_BASED for entries whose messages have the same key, as required for Key_Shared subscriptions.",
        unset="", default="", record="batchBuilder",
    )  # fmt: skip
    compression_type: str | None = option(
        "compressionType", one_of(*COMPRESSIONS), "; ".join(COMPRESSIONS),
        default=DEFAULT_COMPRESSION, record="compressionType",
    )  # fmt: skip
    batching_config: BatchingConfig | None = option(  # noqa: RUF009  it makes a field()
        "batchingConfig", nested(BatchingConfig), "Limits of entries.", record="batchingSpec"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources of one instance: cores, bytes of memory, bytes of disk."""

    cpu: float | None = option(
        "cpu", NUMBER, "Cores per instance; 1 means no limit.", flags="--cpu", default=DEFAULT_CPU, record="cpu"
    )
    ram: int | None = option(
        "ram",
        SIZE_BYTES,
        "Memory per instance, in bytes or with a unit such as 512M.",
        flags="--ram",
        default=DEFAULT_RAM_BYTES,
        record="ram",
    )
    disk: int | None = option(
        "disk",
        SIZE_BYTES,
        "Bytes of disk per instance; not enforced, so only the default is accepted.",
        flags="--disk",
        default=DEFAULT_DISK_BYTES,
        record="disk",
    )


_WINDOW_FIELDS = (
    Field("windowLengthCount", INTEGER, "Window length in messages.", "--window-length-count --windowLengthCount"),
    Field("windowLengthDurationMs", INTEGER, "Window length in ms.", "--window-length-duration-ms "
    "--windowLengthDurationMs"),
    Field("slidingIntervalCount", INTEGER, "Sliding interval in messages.", "--sliding-interval-count "
    "--slidingIntervalCount"),
    Field(
        "slidingIntervalDurationMs", INTEGER, "Sliding interval in ms.",
        "--sliding-interval-duration-ms --slidingIntervalDurationMs",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionConfig:
    """The fields of a request for a function. None means not sent.

    `input_specs` collects the inputs from all JSON fields for inputs.
    """

    tenant: str | None = option("tenant", TEXT, "Function tenant.", record="tenant")
    namespace: str | None = option("namespace", TEXT, "Function namespace.", record="namespace")
    name: str | None = option("name", TEXT, "Function name.", record="name")
    class_name: str | None = option(
        "className", TEXT, "Function to run, as module.Class or module.function.",
        flags="--classname --className", record="className",
    )  # fmt: skip
    input_specs: Mapping[str, ConsumerSpec] = option(
        "inputSpecs", map_of(nested(ConsumerSpec)), "Input topics with their consumer settings, as JSON.",
        flags="--input-specs", unset={}, record="source.inputSpecs",
    )  # fmt: skip
    output: str | None = option("output", CLEARABLE_TEXT, "Output topic.", flags="-o --output", record="sink.topic")
    producer: ProducerSpec | None = option(  # noqa: RUF009  it makes a field()
        "producerConfig", nested(ProducerSpec), "Output producer settings, as JSON.",
        flags="--producer-config", default=ProducerSpec(), record="sink.producerSpec",
    )  # fmt: skip
    batch_builder: str | None = option(
        "batchBuilder",
        one_of(*BATCH_BUILDERS),
        "Same as producerConfig.batchBuilder: DEFAULT or KEY_BASED.",
        flags="--batch-builder",
    )
    output_schema_type: str | None = option(
        "outputSchemaType", TEXT, "Schema type or schema class of the output topic.",
        flags="-st --schema-type", record="sink.schemaType", fixed="Output Schema mismatch",
    )  # fmt: skip
    output_schema_properties: Mapping[str, str] | None = option(
        "outputSchemaProperties", TEXT_MAP._replace(load=lambda value: dict(value) or None),
        "Schema properties of the output topic.", record="sink.schemaProperties",
    )  # fmt: skip
    output_serde_class_name: str | None = option(
        "outputSerdeClassName", TEXT, "SerDe for outputs.",
        flags="--output-serde-classname --outputSerdeClassName", record="sink.serDeClassName",
        fixed="Output Serde mismatch",
    )  # fmt: skip
    input_type_class_name: str | None = option(
        "inputTypeClassName", TEXT, "Class of the input values; derived from annotations.",
        flags="--input-type-class-name", record="source.typeClassName",
    )  # fmt: skip
    output_type_class_name: str | None = option(
        "outputTypeClassName", TEXT, "Class of the output values; derived from annotations.",
        flags="--output-type-class-name", record="sink.typeClassName",
    )  # fmt: skip
    log_topic: str | None = option(
        "logTopic", CLEARABLE_TEXT, "Topic that receives the function's log.",
        flags="--log-topic --logTopic", record="logTopic",
    )  # fmt: skip
    processing_guarantees: str | None = option(
        "processingGuarantees", one_of(*GUARANTEES), "; ".join(GUARANTEES),
        flags="--processing-guarantees --processingGuarantees", default=ATLEAST_ONCE, record="processingGuarantees",
        fixed="Processing Guarantees cannot be altered",
    )  # fmt: skip
    retain_ordering: bool | None = option(
        "retainOrdering", SWITCH, "Process each topic in order.",
        flags="--retain-ordering --retainOrdering", default=False, record="retainOrdering",
        fixed="Retain Ordering cannot be altered",
    )  # fmt: skip
    retain_key_ordering: bool | None = option(
        "retainKeyOrdering", SWITCH, "Process each key in order.",
        flags="--retain-key-ordering", default=False, record="retainKeyOrdering",
        fixed="Retain Key Ordering cannot be altered",
    )  # fmt: skip
    forward_source_message_property: bool | None = option(
        "forwardSourceMessageProperty", FLAG._replace(show=lambda value: value or None), "Copy input properties to "
        "outputs.",
        flags="--forward-source-message-property", default=True, record="sink.forwardSourceMessageProperty",
    )  # fmt: skip
    user_config: Mapping[str, Any] | None = option(
        "userConfig", OBJECT, "Result of context.get_user_config_map, as JSON.",
        flags="--user-config --userConfig", default={}, record="userConfig",
    )  # fmt: skip
    secrets: Mapping[str, Any] | None = option(
        "secrets", OBJECT, "Secrets for context.get_secret: the location of each secret by name, as JSON.",
        flags="--secrets", record="secretsMap",
    )  # fmt: skip
    runtime: str | None = option(
        "runtime", one_of("PYTHON", "JAVA", "GO"), "Language; derived from py.",
        record="runtime", fixed="Runtime cannot be altered",
    )  # fmt: skip
    auto_ack: bool | None = option(
        "autoAck", FLAG, "Whether messages are acknowledged automatically (deprecated by Pulsar).",
        flags="--auto-ack --autoAck", default=True, record="autoAck", fixed="AutoAck cannot be altered",
    )  # fmt: skip
    max_message_retries: int | None = option(
        "maxMessageRetries", INTEGER, "Maximum retries of a failing message; unlimited if unset or negative.",
        flags="--max-message-retries", record="retryDetails.maxMessageRetries",
    )  # fmt: skip
    dead_letter_topic: str | None = option(
        "deadLetterTopic", CLEARABLE_TEXT, "Topic for messages that exceeded the maximum retries.",
        flags="--dead-letter-topic", record="retryDetails.deadLetterTopic",
    )  # fmt: skip
    sub_name: str | None = option(
        "subName", TEXT, "Subscription name.",
        flags="--subs-name", record="source.subscriptionName", fixed="Subscription Name cannot be altered",
    )  # fmt: skip
    parallelism: int | None = option(
        "parallelism", INTEGER, "Number of instances.", flags="--parallelism", default=1, record="parallelism"
    )
    resources: Resources | None = option(  # noqa: RUF009  it makes a field()
        "resources", nested(Resources), "Resources per instance.", default=Resources(), record="resources"
    )
    window_config: Mapping[str, Any] | None = option(
        "windowConfig", OBJECT._replace(members=_WINDOW_FIELDS), "Message windows.", refused=NOT_YET
    )
    timeout_ms: int | None = option(
        "timeoutMs", INTEGER, "Delay before a failed message is redelivered, in ms.",
        flags="--timeout-ms --timeoutMs", record="source.timeoutMs",
    )  # fmt: skip
    cleanup_subscription: bool | None = option(
        "cleanupSubscription", SWITCH, "Delete the subscription when the function is deleted.",
        flags="--cleanup-subscription", default=True, record="source.cleanupSubscription",
    )  # fmt: skip
    custom_runtime_options: str | None = option(
        "customRuntimeOptions", TEXT, 'JSON object, such as {"runtimeEnv":"thread"}.',
        flags="--custom-runtime-options", record="customRuntimeOptions", compare=False,
    )  # fmt: skip
    """The value as sent or stored.

    Its contents are in the attributes of `RUNTIME_OPTIONS`, from which records are written.
    """
    subscription_position: str | None = option(
        "subscriptionPosition", one_of(*POSITIONS)._replace(store=str.upper, load=str.capitalize),
        "Start of a new subscription: Latest or Earliest.",
        flags="--subs-position", default="Latest", record="source.subscriptionPosition",
    )  # fmt: skip
    skip_to_latest: bool | None = option(
        "skipToLatest", FLAG._replace(show=lambda value: value or None), "Skip the backlog at every start.",
        flags="--skip-to-latest", default=False, record="source.skipToLatest",
    )  # fmt: skip
    runtime_env: str | None = option(
        "runtimeEnv", one_of(*RUNTIME_ENVIRONMENTS)._replace(parse=str),
        "Runtime environment: process (default), thread or spark.", flags="--runtime",
    )  # fmt: skip
    sql: str | None = option(
        "sql", TEXT._replace(metavar="STATEMENT"),
        "Spark: query to run instead of code, with the inputs as views.", flags="--sql",
    )  # fmt: skip
    min_partitions: int | None = option(
        "minPartitions", INTEGER, "Spark: minimum number of tasks per run.", flags="--min-partitions"
    )
    cron: str | None = option(
        "cron", CLEARABLE_TEXT._replace(show=lambda text: text or None),
        "Spark: start times of runs, as a five-field cron expression in UTC; empty for none.", flags="--cron",
    )  # fmt: skip
    backlog_trigger: int | None = option(
        "backlogTrigger", INTEGER._replace(show=lambda number: number or None),
        "Spark: number of entries in the inputs that starts a run; 0 for never.", flags="--backlog-trigger",
    )  # fmt: skip
    continuous_interval_ms: int | None = option(
        "continuousIntervalMs", DURATION_MS._replace(show=lambda number: number or None),
        "Spark: interval between runs while the inputs contain entries, such as 10s; 0 for "
        "never.", flags="--continuous",
    )  # fmt: skip
    max_pending_async_requests: int | None = option(
        "maxPendingAsyncRequests",
        INTEGER._replace(show=lambda number: None if number == DEFAULT_ASYNC_CALLS else number),
        f"async def: maximum concurrent calls; default {DEFAULT_ASYNC_CALLS}.",
        flags="--max-pending-async-requests",
    )
    """The default counts as not set, because Pulsar's tools send it with every function of any kind."""
    expose_admin: bool | None = option(
        "exposePulsarAdminClientEnabled", FLAG._replace(show=lambda value: value or None),
        "Whether the context provides a client for the admin REST API.", flags="--expose-pulsar-admin-client-enabled",
    )  # fmt: skip
    run_time_limit_ms: int | None = option(
        "runTimeLimitMs", INTEGER, "Processes: maximum run time per message, in ms.",
        flags="--run-time-limit-ms",
    )  # fmt: skip
    runtime_flags: str | None = option(
        "runtimeFlags", TEXT, "Flags for the runtime.",
        flags="--runtime-flags", record="runtimeFlags", refused=NOT_YET,
    )  # fmt: skip
    py: str | None = option("py", TEXT, "Code: a .py, .zip or .whl file, or its URL.", flags="--py", compare=False)
    """A path on the client's disk, on any system. It only determines the language and the file name."""
    sent_fqfn: str | None = option("fqfn", TEXT, "Function as tenant/namespace/name.", compare=False)
    """Must match the function's name if set."""
    refused: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Fields that were sent but are not supported, with the reason. Raised after Pulsar's own rules."""

    @property
    def file_name(self) -> str:
        """Last part of `py`, for an upload without a file name."""
        return PureWindowsPath(PurePosixPath(self.py or "").name).name


OTHER_FIELDS = (
    Field("jar", TEXT, "Java code.", "--jar",
          refused="Java functions are not supported; use py with a Python file"),
    Field("go", TEXT, "Go code.", "--go",
          refused="Go functions are not supported; use py with a Python file"),
    Field("functionType", TEXT, "Built-in function.", "-t --function-type",
          refused="built-in functions are not supported yet; use py with a Python file"),
    Field("inputs", TEXTS, "Comma-separated input topics.", "-i --inputs"),
    Field("topicsPattern", TEXT, "Input topic pattern.", "--topics-pattern --topicsPattern"),
    Field("customSerdeInputs", TEXT_MAP, "SerDe class by topic, as JSON.", "--custom-serde-inputs --customSerdeInputs"),
    Field("customSchemaInputs", TEXT_MAP, "Schema type, or JSON as in inputSpecs, by topic, as JSON.",
          "--custom-schema-inputs"),
    Field("customSchemaOutputs", TEXT_MAP, "Same as customSchemaInputs, for the output "
    "topic.", "--custom-schema-outputs"),
)  # fmt: skip
"""Fields without an attribute: alternative fields for inputs, and fields that are only read to be rejected."""

FUNCTION_FIELDS = (*fields_of(FunctionConfig), *OTHER_FIELDS)
"""The table: all JSON fields."""
FIELDS_BY_NAME = by_name(FUNCTION_FIELDS)
RUNTIME_OPTIONS = (
    "runtimeEnv", "minPartitions", "maxPendingAsyncRequests", "exposePulsarAdminClientEnabled", "runTimeLimitMs",
    "cron", "backlogTrigger", "continuousIntervalMs", "sql",
)  # fmt: skip
"""Our own fields, which a record can only hold in customRuntimeOptions, where Pulsar's tools can set them as well."""
ENCRYPTION_MARK = "requiresEncryption"
"""Additional field in customRuntimeOptions of a record whose messages are encrypted or decrypted.

Versions of workers that would ignore a cryptoConfig, and send messages in clear text, do not support this option and
refuse to run the instance.
"""

_PULSARS_ORDER = (
    "className", "py", "jar", "go", "functionType", "inputs", "topicsPattern", "inputSpecs", "customSerdeInputs",
    "customSchemaInputs", "inputTypeClassName", "output", "outputSerdeClassName", "outputTypeClassName",
    "outputSchemaType", "customSchemaOutputs", "producerConfig", "batchBuilder", "forwardSourceMessageProperty",
    "logTopic", "processingGuarantees", "userConfig", "secrets", "parallelism", "runtimeEnv", "sql", "minPartitions",
    "cron", "backlogTrigger", "continuousIntervalMs", "maxPendingAsyncRequests", "runTimeLimitMs", "autoAck", "subName",
    "subscriptionPosition", "skipToLatest", "cleanupSubscription",
    "retainOrdering", "retainKeyOrdering", "timeoutMs", "maxMessageRetries", "deadLetterTopic", "resources",
    "windowConfig", "customRuntimeOptions", "runtimeFlags",
)  # fmt: skip
"""Order of the flags in the help, as in Pulsar, followed by all other flags."""


def _place(path_and_field: tuple[str, Field]) -> int:
    name = path_and_field[0].partition(".")[0]
    return _PULSARS_ORDER.index(name) if name in _PULSARS_ORDER else len(_PULSARS_ORDER)


FUNCTION_FLAGS = tuple(sorted(with_flags(FUNCTION_FIELDS), key=_place))
"""Path and field of every flag, in the order of the help."""
