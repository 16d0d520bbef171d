"""Conversion of SourceConfig and SinkConfig from and to JSON and records, updates, and validation rules.

As in Pulsar, the record of a connector is a function that returns its input, between a source and a sink, one of which
is a topic.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ..errors import InvalidConfig
from ..wire.functions_pb2 import FAILOVER, FunctionDetails
from .batch_source import check_batch, joined, parted, updated_batch
from .connector_config import (
    BUILT_IN,
    SINK_FIELDS_BY_NAME,
    SOURCE_FIELDS_BY_NAME,
    ConnectorConfig,
    SinkConfig,
    SourceConfig,
)
from .conversion import merge_inputs, options_text, runtime_options
from .crypto_config import check_crypto
from .endpoint_rules import check_consumer_properties, refused_of_source
from .function_config import (
    ATMOST_ONCE,
    EFFECTIVELY_ONCE,
    MANUAL,
    PROCESS,
    RUNTIME_OPTIONS,
    ConsumerSpec,
    ProducerSpec,
    Resources,
)
from .rules import (
    check_amounts,
    check_dead_letter_topic,
    check_fixed,
    check_inputs,
    check_name,
    check_specs,
    check_subscription_name,
    check_topic,
    overlay,
    refusals,
    unsupported_resources,
)
from .schema_rules import schemas_of_sinks
from .table import Json, attributes, from_message, read_fields, show, to_message

IDENTITY = "org.apache.pulsar.functions.api.utils.IdentityFunction"
_NO_INPUT = (
    "Must specify at least one topic of input via topicToSerdeClassName, topicsPattern, topicToSchemaType or inputSpecs"
)
_C = TypeVar("_C", SourceConfig, SinkConfig)


def read_source_config(json_object: Json) -> SourceConfig:
    """Parse a source config from JSON, without defaults or validation.

    Raises:
        InvalidConfig: a field is unknown or has a value of the wrong type. For an unknown field, the message suggests
          the
            nearest known name.
    """
    values, config = _read(json_object, SOURCE_FIELDS_BY_NAME, "sourceType")
    return SourceConfig(**config, refused=_refused(values, SOURCE_FIELDS_BY_NAME))


def read_sink_config(json_object: Json) -> SinkConfig:
    """Parse a sink config from JSON, in the same way as `read_source_config`."""
    values, config = _read(json_object, SINK_FIELDS_BY_NAME, "sinkType")
    specs: dict[str, ConsumerSpec] = dict.fromkeys(values.get("inputs", ()), ConsumerSpec())
    for topic, serde in values.get("topicToSerdeClassName", {}).items():
        specs[topic] = ConsumerSpec(serde_class_name=serde or None)
    specs.update(values.get("inputSpecs", {}))
    return SinkConfig(**config | {"input_specs": specs}, refused=_refused(values, SINK_FIELDS_BY_NAME))


def _read(json_object: Json, fields: Mapping[str, Any], kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    sent = {name: value for name, value in json_object.items() if value is not None}
    values = read_fields(fields, sent)
    config = attributes(fields, values)
    if name := values.get(kind):
        if config.get("archive") not in (None, BUILT_IN + name):
            raise InvalidConfig(f"{kind} {name} contradicts archive {config['archive']}: set only one of them")
        config["archive"] = BUILT_IN + name
    known = {field.attribute for field in fields.values()}
    for attribute, value in runtime_options(values.get("customRuntimeOptions")).items():
        if attribute not in known:
            raise InvalidConfig(
                f"customRuntimeOptions: of {', '.join(RUNTIME_OPTIONS)}, sources and sinks support only runtimeEnv: "
                f"remove the others"
            )
        if config.get(attribute) is None:
            config[attribute] = value
    return values, config


def _refused(values: Json, fields: Mapping[str, Any]) -> dict[str, str]:
    others = ((fields[name], value) for name, value in values.items() if not fields[name].attribute)
    return {field.name: field.refused for field, value in others if field.refused and value}


def built_in(config: ConnectorConfig) -> str:
    """Return the name of the built-in connector in a config, or an empty string if the connector is uploaded."""
    archive = config.archive or ""
    return archive.removeprefix(BUILT_IN) if archive.startswith(BUILT_IN) else ""


# -- rules ------------------------------------------------------------------------------------------------------------


def check_source(config: SourceConfig) -> None:
    """Raise InvalidConfig for the first rule broken by a source config with defaults."""
    check_name(config, "Source")
    if not config.topic_name:
        raise InvalidConfig("Topic name cannot be null")
    try:
        check_topic("Output", config.topic_name)
    except InvalidConfig:
        raise InvalidConfig("Topic name is invalid") from None
    if config.schema_type and config.serde_class_name:
        raise InvalidConfig("Only one of serdeClassName or schemaType should be set")
    if config.processing_guarantees in (ATMOST_ONCE, MANUAL):
        raise InvalidConfig(
            f"processingGuarantees {config.processing_guarantees} is not supported by sources, which are always at "
            f"least once: remove processingGuarantees, or use EFFECTIVELY_ONCE if the source has positions"
        )
    if config.batch_source_config is not None:
        check_batch(config.batch_source_config)
    check_crypto((config.producer or ProducerSpec()).crypto_config, "producerConfig.cryptoConfig", is_of_producer=True)
    _check_connector(config, "Source")


def check_sink(config: SinkConfig) -> None:
    """Raise InvalidConfig for the first rule broken by a sink config with defaults."""
    check_name(config, "Sink")
    check_inputs(config.input_specs, _NO_INPUT)
    check_specs(config.input_specs)
    is_ordered = bool(config.retain_ordering) or config.processing_guarantees == EFFECTIVELY_ONCE
    check_consumer_properties(config.input_specs, is_ordered=is_ordered)
    check_subscription_name(config.subscription_name or "", "sourceSubscriptionName")
    if config.retain_ordering and config.retain_key_ordering:
        raise InvalidConfig("Only one of retain ordering or retain key ordering can be set")
    if config.retain_key_ordering and config.processing_guarantees == EFFECTIVELY_ONCE:
        raise InvalidConfig(
            "When effectively once processing guarantee is specified, retain Key ordering cannot be set"
        )
    if config.timeout_ms is not None and config.timeout_ms < 0:
        raise InvalidConfig("Sink timeout must be a positive number")
    if config.processing_guarantees == MANUAL:
        raise InvalidConfig(
            "processingGuarantees MANUAL is not supported by sinks, which acknowledge messages once they are written"
        )
    if config.auto_ack is False and config.processing_guarantees == ATMOST_ONCE:
        raise InvalidConfig(
            "When Guarantees == ATMOST_ONCE, autoAck must be equal to true. This is a contradictory configuration,"
            " autoAck will be removed later. Please refer to PIP: https://github.com/apache/pulsar/issues/15560"
        )
    if config.dead_letter_topic:
        check_dead_letter_topic(config.dead_letter_topic, config.input_specs)
    for name, number in (
        ("maxMessageRetries", config.max_message_retries),
        ("negativeAckRedeliveryDelayMs", config.negative_ack_redelivery_delay_ms),
    ):
        if number is not None and number < 0:
            raise InvalidConfig(f"{name} must be 0 or more, not {number}")
    _check_connector(config, "Sink")


def _check_connector(config: ConnectorConfig, what: str) -> None:
    for name, value in (config.secrets or {}).items():
        if not isinstance(value, str):
            raise InvalidConfig(f"secrets.{name} must be a string")
    if config.log_topic:
        check_topic("LogTopic", config.log_topic)
    check_amounts(config.parallelism or 0, config.resources or Resources(), what)
    _check_transform(config)
    for name, reason in _unsupported(config):
        raise InvalidConfig(f"{name}: {reason}")


def _check_transform(config: ConnectorConfig) -> None:
    class_name, code = config.transform_function_class_name, config.transform_function
    if not class_name:
        for name, value in (("transformFunction", code), ("transformFunctionConfig", config.transform_function_config)):
            if value:
                raise InvalidConfig(f"{name} requires transformFunctionClassName")
        return
    if code and not built_in(config):
        raise InvalidConfig(
            "transformFunction is only supported for installed connectors: include the function in the connector's "
            "archive, and set only transformFunctionClassName"
        )
    if code and ("://" in code or code.startswith("builtin")):
        raise InvalidConfig(f"transformFunction {code[:80]!r} must be an uploaded file, not a URL")
    try:
        settings = json.loads(config.transform_function_config or "{}")
    except ValueError as error:
        raise InvalidConfig(f"transformFunctionConfig is not valid JSON: {error}") from error
    if not isinstance(settings, dict):
        raise InvalidConfig("transformFunctionConfig must be a JSON object")


def _unsupported(config: ConnectorConfig) -> Iterator[tuple[str, str]]:
    yield from refusals(config)
    for topic, spec in getattr(config, "input_specs", {}).items():
        yield from refusals(spec, f"inputSpecs[{topic}].")
        if spec.is_regex_pattern:
            yield f"inputSpecs[{topic}].regexPattern", "sinks do not support topic patterns; remove this field"
    yield from schemas_of_sinks(getattr(config, "input_specs", {}))
    producer = getattr(config, "producer", None) or ProducerSpec()
    yield from refusals(producer, "producerConfig.")
    yield from refused_of_source(producer)
    yield from unsupported_resources(config.resources or Resources(), config.runtime_env or PROCESS)
    yield from config.refused.items()


# -- records ----------------------------------------------------------------------------------------------------------


def to_details(config: SourceConfig | SinkConfig) -> FunctionDetails:
    """Convert a complete, valid config to a record."""
    is_sink = isinstance(config, SinkConfig)
    values = to_message(config)
    values |= {
        "className": config.transform_function_class_name or IDENTITY,
        "componentType": "SINK" if is_sink else "SOURCE",
        "runtime": "PYTHON",
        "customRuntimeOptions": options_text(
            {"runtimeEnv": config.runtime_env} if config.runtime_env else {},
            getattr(config, "input_specs", {}),
            getattr(config, "producer", None),
        ),
    }
    values["sink" if is_sink else "source"]["builtin"] = built_in(config)
    if isinstance(config, SinkConfig):
        ordered = config.retain_ordering or config.processing_guarantees == EFFECTIVELY_ONCE
        values["source"]["subscriptionType"] = "FAILOVER" if ordered else "SHARED"
        values["subscriptionPosition"] = values["source"]["subscriptionPosition"]
    else:
        values["sink"]["forwardSourceMessageProperty"] = values["autoAck"] = True
        batch, class_name = config.batch_source_config, config.class_name
        values["source"]["configs"] = json.dumps(joined(config.configs or {}, batch, class_name))
    return FunctionDetails(**values)


def from_details(details: FunctionDetails) -> SourceConfig | SinkConfig:
    """Convert a record to the complete config that it was created from."""
    is_sink = details.componentType == FunctionDetails.SINK
    config = from_message(SinkConfig, details) if is_sink else from_message(SourceConfig, details)
    name = (details.sink if is_sink else details.source).builtin
    configs, batch = parted(config.configs or {})
    if isinstance(config, SourceConfig):
        config = replace(config, batch_source_config=batch)
    else:  # as in Pulsar, derived from the subscription type
        config = replace(config, retain_ordering=details.source.subscriptionType == FAILOVER)
    return replace(
        config,
        configs=configs,
        transform_function_class_name=None if details.className == IDENTITY else details.className or None,
        transform_function_config=details.userConfig or None,
        archive=BUILT_IN + name if name else None,
        parallelism=details.parallelism,
        resources=Resources(cpu=details.resources.cpu, ram=details.resources.ram, disk=details.resources.disk),
        **runtime_options(config.custom_runtime_options),
    )


def to_json(details: FunctionDetails) -> dict[str, Any]:
    """Return the response to GET."""
    config = from_details(details)
    answer = show(config)
    if isinstance(config, SinkConfig):
        answer["inputs"] = sorted(config.input_specs)
    return answer


def merge(existing: _C, sent: _C) -> _C:
    """Return the config after an update.

    Raises:
        InvalidConfig: the update changes a fixed field.
    """
    check_fixed(existing, sent)
    if isinstance(existing, SourceConfig) and isinstance(sent, SourceConfig):
        sent = replace(sent, batch_source_config=updated_batch(existing.batch_source_config, sent.batch_source_config))
        is_exact = existing.processing_guarantees == EFFECTIVELY_ONCE
        if is_exact and sent.parallelism not in (None, existing.parallelism):
            raise InvalidConfig(
                "parallelism of a source with EFFECTIVELY_ONCE cannot be changed, as each instance has its own "
                "position: delete and recreate the source"
            )
    resources = existing.resources
    if resources is not None and sent.resources is not None:
        resources = overlay(resources, sent.resources)
    merged = replace(overlay(existing, sent), resources=resources or sent.resources, refused=sent.refused)
    if isinstance(existing, SinkConfig) and isinstance(sent, SinkConfig):
        specs = merge_inputs(existing.input_specs, sent.input_specs)
        return replace(merged, input_specs=specs, subscription_position=existing.subscription_position)
    return merged
