"""Requested configurations of sources and sinks: `SourceConfig` and `SinkConfig`, as tables of fields.

They are read, completed, checked, merged, stored and shown in the same way as a `FunctionConfig`. The connector's own
settings are under ``configs``, and are not defined here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from .function_config import (
    ATLEAST_ONCE,
    GUARANTEES,
    NOT_YET,
    POSITIONS,
    PROCESS,
    ConsumerSpec,
    ProducerSpec,
    Resources,
)
from .table import (
    CLEARABLE_TEXT,
    FLAG,
    INTEGER,
    OBJECT,
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

BUILT_IN = "builtin://"
"""Prefix of an archive that refers to a built-in connector."""
_RUNTIMES = (PROCESS, "thread")


def _class_name(spec: str) -> Any:
    return option(
        "className", TEXT, "Connector class in the archive, as module.Class.",
        flags="--classname --className", record=f"{spec}.className",
    )  # fmt: skip


def _configs(spec: str, flags: str) -> Any:
    return option(
        "configs", OBJECT, "Connector configuration as JSON.", flags=flags, default={}, record=f"{spec}.configs"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorConfig:
    """The fields of a request for a source or a sink. None means not sent."""

    tenant: str | None = option("tenant", TEXT, "Connector tenant.", record="tenant")
    namespace: str | None = option("namespace", TEXT, "Connector namespace.", record="namespace")
    name: str | None = option("name", TEXT, "Connector name.", record="name")
    class_name: str | None = None
    configs: Mapping[str, Any] | None = None
    secrets: Mapping[str, Any] | None = option(
        "secrets", OBJECT, "Values of secret fields by name, as JSON.", flags="--secrets", record="secretsMap"
    )
    parallelism: int | None = option(
        "parallelism", INTEGER, "Number of instances.", flags="--parallelism", default=1, record="parallelism"
    )
    processing_guarantees: str | None = option(
        "processingGuarantees", one_of(*GUARANTEES), "; ".join(GUARANTEES),
        flags="--processing-guarantees --processingGuarantees", default=ATLEAST_ONCE, record="processingGuarantees",
        fixed="Processing Guarantees cannot be altered",
    )  # fmt: skip
    resources: Resources | None = option(  # noqa: RUF009  it makes a field()
        "resources", nested(Resources), "Resources per instance.", default=Resources(), record="resources"
    )
    archive: str | None = option(
        "archive", TEXT, "Code: a .py, .zip or .whl file; or builtin://NAME.", flags="-a --archive", compare=False
    )
    log_topic: str | None = option(
        "logTopic", CLEARABLE_TEXT, "Topic that receives the log.", flags="--log-topic --logTopic", record="logTopic"
    )
    runtime_env: str | None = option(
        "runtimeEnv", one_of(*_RUNTIMES)._replace(parse=str), "Runtime environment: process (default) or thread.",
        flags="--runtime",
    )  # fmt: skip
    custom_runtime_options: str | None = option(
        "customRuntimeOptions", TEXT, 'JSON object, such as {"runtimeEnv":"thread"}.',
        flags="--custom-runtime-options", record="customRuntimeOptions", compare=False,
    )  # fmt: skip
    transform_function: str | None = option(
        "transformFunction", TEXT,
        "Code of the transform function for an installed connector: a .py, .zip or .whl file. An uploaded connector "
        "contains it in its archive.",
        flags="--transform-function", compare=False,
    )  # fmt: skip
    transform_function_class_name: str | None = option(
        "transformFunctionClassName", CLEARABLE_TEXT, "Transform function applied to each record, as module.Class or "
        "module.function.",
        flags="--transform-function-classname", record="className",
    )  # fmt: skip
    transform_function_config: str | None = option(
        "transformFunctionConfig", CLEARABLE_TEXT, "User config of the transform function, as JSON.",
        flags="--transform-function-config", record="userConfig",
    )  # fmt: skip
    runtime_flags: str | None = option(
        "runtimeFlags", TEXT, "Flags for the runtime.",
        flags="--runtime-flags", record="runtimeFlags", refused=NOT_YET,
    )  # fmt: skip
    refused: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Fields that were sent but are not supported, with the reason."""

    @property
    def file_name(self) -> str:
        """Last part of `archive`, for an upload without a file name."""
        return PureWindowsPath(PurePosixPath(self.archive or "").name).name


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig(ConnectorConfig):
    """The fields of a request for a source."""

    class_name: str | None = _class_name("source")
    configs: Mapping[str, Any] | None = _configs("source", "--source-config --sourceConfig")
    topic_name: str | None = option(
        "topicName", TEXT, "Output topic.",
        flags="-o --destination-topic-name --destinationTopicName", record="sink.topic",
    )  # fmt: skip
    serde_class_name: str | None = option(
        "serdeClassName", TEXT, "SerDe for the values.",
        flags="--deserialization-classname --deserializationClassName", record="sink.serDeClassName",
    )  # fmt: skip
    schema_type: str | None = option(
        "schemaType", TEXT, "Schema of the topic.", flags="-st --schema-type", record="sink.schemaType", refused=NOT_YET
    )
    producer: ProducerSpec | None = option(  # noqa: RUF009  it makes a field()
        "producerConfig", nested(ProducerSpec), "Producer settings, as JSON.",
        flags="--producer-config", default=ProducerSpec(), record="sink.producerSpec",
    )  # fmt: skip
    batch_source_config: Mapping[str, Any] | None = option(
        "batchSourceConfig", OBJECT, "How a batch source discovers its tasks, as JSON.", flags="--batch-source-config"
    )
    batch_builder: str | None = option(
        "batchBuilder", TEXT, "How records are batched.", flags="--batch-builder", refused=NOT_YET
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig(ConnectorConfig):
    """The fields of a request for a sink. `input_specs` collects the inputs from all JSON fields for inputs."""

    class_name: str | None = _class_name("sink")
    configs: Mapping[str, Any] | None = _configs("sink", "--sink-config --sinkConfig")
    input_specs: Mapping[str, ConsumerSpec] = option(
        "inputSpecs", map_of(nested(ConsumerSpec)), "Input topics with their consumer settings, as JSON.",
        flags="--input-specs", unset={}, record="source.inputSpecs",
    )  # fmt: skip
    subscription_name: str | None = option(
        "sourceSubscriptionName", TEXT, "Subscription name.",
        flags="--subs-name --subsName", record="source.subscriptionName", fixed="Subscription Name cannot be altered",
    )  # fmt: skip
    subscription_position: str | None = option(
        "sourceSubscriptionPosition", one_of(*POSITIONS)._replace(store=str.upper, load=str.capitalize),
        "Start of a new subscription: Latest or Earliest.",
        flags="--subs-position", default="Latest", record="source.subscriptionPosition",
    )  # fmt: skip
    max_message_retries: int | None = option(
        "maxMessageRetries", INTEGER,
        "Maximum retries of a rejected message before it goes to the dead-letter topic. If greater than 0, a message "
        "that makes the sink fail counts as rejected.",
        flags="--max-redeliver-count", record="retryDetails.maxMessageRetries",
    )  # fmt: skip
    dead_letter_topic: str | None = option(
        "deadLetterTopic", TEXT, "Topic for messages that the sink rejects; by default TOPIC-NAME-DLQ for each topic.",
        flags="--dead-letter-topic", record="retryDetails.deadLetterTopic",
    )  # fmt: skip
    retain_ordering: bool | None = option(
        "retainOrdering", SWITCH, "Write records of each topic in order.",
        flags="--retain-ordering --retainOrdering", default=False, record="retainOrdering",
        fixed="Retain Ordering cannot be altered",
    )  # fmt: skip
    retain_key_ordering: bool | None = option(
        "retainKeyOrdering", SWITCH, "Write records of each key in order.",
        flags="--retain-key-ordering", default=False, record="retainKeyOrdering",
        fixed="Retain Key Ordering cannot be altered", refused=NOT_YET,
    )  # fmt: skip
    auto_ack: bool | None = option(
        "autoAck", FLAG, "No effect (deprecated by Pulsar): a sink acknowledges messages once they are written.",
        flags="--auto-ack --autoAck", default=True, record="autoAck", fixed="AutoAck cannot be altered",
    )  # fmt: skip
    timeout_ms: int | None = option(
        "timeoutMs", INTEGER, "Delay before an unacknowledged message is redelivered, in ms.",
        flags="--timeout-ms", record="source.timeoutMs", refused=NOT_YET,
    )  # fmt: skip
    negative_ack_redelivery_delay_ms: int | None = option(
        "negativeAckRedeliveryDelayMs", INTEGER,
        "Delay before a rejected message is retried, in ms; by default 100, doubled on each retry.",
        flags="--negative-ack-redelivery-delay-ms", record="source.negativeAckRedeliveryDelayMs",
    )  # fmt: skip
    cleanup_subscription: bool | None = option(
        "cleanupSubscription", SWITCH, "Delete the subscription when the sink is deleted.",
        flags="--cleanup-subscription", default=True, record="source.cleanupSubscription",
    )  # fmt: skip


_OTHERS = (
    Field("sinkType", TEXT, "Name of an installed sink.", "-t --sink-type"),
    Field("sourceType", TEXT, "Name of an installed source.", "-t --source-type"),
    Field("inputs", TEXTS, "Comma-separated input topics.", "-i --inputs"),
    Field("topicsPattern", TEXT, "Input topic pattern.", "--topics-pattern --topicsPattern", refused=NOT_YET),
    Field("topicToSerdeClassName", TEXT_MAP, "SerDe class by topic, as JSON.",
          "--custom-serde-inputs --customSerdeInputs"),
    Field("topicToSchemaType", OBJECT, "Schema by topic, as JSON.", "--custom-schema-inputs", refused=NOT_YET),
    Field("topicToSchemaProperties", OBJECT, "Schema properties by topic, as JSON.", refused=NOT_YET),
)  # fmt: skip

SOURCE_FIELDS = (*fields_of(SourceConfig), *(one for one in _OTHERS if one.name == "sourceType"))
"""All fields that the JSON of a source may have."""
SINK_FIELDS = (*fields_of(SinkConfig), *(one for one in _OTHERS if one.name != "sourceType"))
"""All fields that the JSON of a sink may have."""
SOURCE_FIELDS_BY_NAME = by_name(SOURCE_FIELDS)
SINK_FIELDS_BY_NAME = by_name(SINK_FIELDS)
_FIRST = ("sourceType", "sinkType", "inputs", "topicName", "configs", "secrets", "archive", "className")
"""The most common fields, whose flags come first in the help."""


def _in_order(flags: Iterable[tuple[str, Field]]) -> tuple[tuple[str, Field], ...]:
    return tuple(sorted(flags, key=lambda flag: _FIRST.index(flag[0]) if flag[0] in _FIRST else len(_FIRST)))


SOURCE_FLAGS = _in_order(with_flags(SOURCE_FIELDS))
SINK_FLAGS = _in_order(with_flags(SINK_FIELDS))
