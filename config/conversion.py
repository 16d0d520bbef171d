"""Conversion of FunctionConfig from and to JSON and the record in the metadata topic, and updates.

When reading, fields not supported by this version are collected in `FunctionConfig.refused` instead of raising
immediately, so that Pulsar's rules, with their known messages, are checked first.

In an update, sent settings replace stored settings, except those marked as fixed in the table. Sent means not None.
Apart from fields replaced as a whole, only `logTopic` and `output` can be cleared, with an empty string.
`subscriptionPosition` is the start of a new subscription and has no meaning for an existing one. Pulsar's own tools
send its default, Latest, with every update, so Latest counts as not sent. Earliest is intentional, and is rejected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import InvalidConfig
from ..wire.functions_pb2 import FunctionDetails, FunctionMetaData
from ..wire.strict_json import NotJson, read_json
from .function_config import (
    EFFECTIVELY_ONCE,
    ENCRYPTION_MARK,
    FIELDS_BY_NAME,
    RUNTIME_OPTIONS,
    SPARK,
    ConsumerSpec,
    FunctionConfig,
    ProducerSpec,
    Resources,
)
from .rules import check_fixed, overlay
from .sql_function import check_code_stays, complete
from .table import (
    Json,
    attributes,
    by_name,
    fields_of,
    from_message,
    read_fields,
    read_object,
    show,
    shown,
    to_message,
)


def read_function_config(json_object: Json) -> FunctionConfig:
    """Parse a config from JSON, without defaults or checks across fields.

    Raises:
        InvalidConfig: a field is unknown or has a value of the wrong type. For an unknown field, the message suggests
          the
            nearest known name.
    """
    sent = {name: value for name, value in json_object.items() if value is not None}
    values = read_fields(FIELDS_BY_NAME, sent)
    config = attributes(FIELDS_BY_NAME, values)
    config["input_specs"] = _inputs(values)
    config |= _output_schema(values)
    if language := _language(values):
        config["runtime"] = language
    for attribute, option in runtime_options(values.get("customRuntimeOptions")).items():
        if config.get(attribute) is None:
            config[attribute] = option
    if config.get("sql") is not None or sent.get("sql") is not None:
        config = complete(config, values)
    return FunctionConfig(**config, refused=_refused(values))


def _refused(values: Json) -> dict[str, str]:
    refused = {}
    for name, value in values.items():
        field = FIELDS_BY_NAME[name]
        if field.refused and not field.attribute and value and value != field.default:
            refused[name] = field.refused
    return refused


def _inputs(values: Json) -> Mapping[str, ConsumerSpec]:
    """Apply the fields for inputs in Pulsar's order. A later field refines the same topic."""
    specs: dict[str, ConsumerSpec] = dict.fromkeys(values.get("inputs", ()), ConsumerSpec())
    if pattern := values.get("topicsPattern"):
        specs[pattern] = ConsumerSpec(is_regex_pattern=True)
    for topic, serde in values.get("customSerdeInputs", {}).items():
        specs[topic] = ConsumerSpec(serde_class_name=serde or None)
    for topic, text in values.get("customSchemaInputs", {}).items():
        specs[topic] = _custom_schema("inputs", topic, text)
    specs.update(values.get("inputSpecs", {}))
    return specs


def _output_schema(values: Json) -> dict[str, Any]:
    """Return the attributes set by customSchemaOutputs."""
    given = dict(values.get("customSchemaOutputs", {}))
    if not given:
        return {}
    output = values.get("output") or next(iter(given))  # optional in an update
    text = given.pop(output, None)
    if given or text is None:
        raise InvalidConfig(
            f"customSchemaOutputs: {shown(next(iter(given)))} is not the output topic: expected {output}"
        )
    spec = _custom_schema("outputs", output, text)
    if values.get("outputSchemaType") not in (None, spec.schema_type):
        raise InvalidConfig(
            f"outputSchemaType {values['outputSchemaType']} contradicts customSchemaOutputs {spec.schema_type}: set "
            f"only one of them"
        )
    return {
        "output_schema_type": spec.schema_type,
        "output_schema_properties": spec.schema_properties or values.get("outputSchemaProperties"),
    }


def _custom_schema(side: str, topic: str, text: str) -> ConsumerSpec:
    """Parse a topic's value in customSchemaInputs or -Outputs: a type, or the JSON of a consumer config."""
    if not text.lstrip().startswith("{"):
        return ConsumerSpec(schema_type=text or None)
    what = f"Incorrect custom schema {side},Topic {topic}"
    try:
        sent = read_object(what, read_json(text))
    except NotJson as error:
        raise InvalidConfig(f"{what}: {shown(text)} is not valid JSON: {error}") from None
    fields = by_name(fields_of(ConsumerSpec))
    return ConsumerSpec(**attributes(fields, read_fields(fields, sent, what)))


def _language(values: Json) -> str | None:
    """Return the language implied by the package."""
    if values.get("py"):
        if values.get("runtime") not in (None, "PYTHON"):
            raise InvalidConfig(f"runtime {values['runtime']} contradicts py, a Python file: remove runtime")
        return "PYTHON"
    return "JAVA" if values.get("jar") else "GO" if values.get("go") else None


def runtime_options(text: str | None) -> dict[str, Any]:
    """Return the config attributes set by customRuntimeOptions.

    Raises:
        InvalidConfig: the value is not a JSON object, or contains a field that is not in `RUNTIME_OPTIONS` or is
          invalid.
    """
    if not text:
        return {}
    try:
        options = read_object("customRuntimeOptions", read_json(text))
    except NotJson:
        raise InvalidConfig(f"customRuntimeOptions must be a JSON object, not {shown(text)}") from None
    if options.pop(ENCRYPTION_MARK, True) is not True:
        raise InvalidConfig(f"customRuntimeOptions.{ENCRYPTION_MARK} is derived from cryptoConfig: remove this field")
    for name in options:
        if name not in RUNTIME_OPTIONS:
            raise InvalidConfig(
                f"customRuntimeOptions: unknown field {name!r}: expected one of {', '.join(RUNTIME_OPTIONS)}"
            )
    return attributes(FIELDS_BY_NAME, read_fields(FIELDS_BY_NAME, options, "customRuntimeOptions"))


def to_details(config: FunctionConfig) -> FunctionDetails:
    """Convert a complete, valid config to a record."""
    values = to_message(config)
    values["source"]["subscriptionType"] = _subscription_type(config)
    values["subscriptionPosition"] = values["source"]["subscriptionPosition"]
    values["componentType"] = "FUNCTION"
    if config.batch_builder:
        values["sink"].setdefault("producerSpec", {})["batchBuilder"] = config.batch_builder
    if config.max_message_retries is None or config.max_message_retries < 0:
        values.pop("retryDetails", None)  # unlimited
    if config.timeout_ms:
        values["source"]["negativeAckRedeliveryDelayMs"] = config.timeout_ms  # as in Pulsar; only `timeoutMs` is shown
    options = {name: getattr(config, FIELDS_BY_NAME[name].attribute) for name in RUNTIME_OPTIONS}
    shown_options = {name: FIELDS_BY_NAME[name].kind.show(value) for name, value in options.items()}
    chosen = {name: value for name, value in shown_options.items() if value is not None}
    values["customRuntimeOptions"] = options_text(chosen, config.input_specs, config.producer)
    return FunctionDetails(**values)


def options_text(chosen: Json, inputs: Mapping[str, ConsumerSpec], producer: ProducerSpec | None) -> str:
    """Return customRuntimeOptions for a record: options, and a mark if messages are encrypted.

    Args:
        chosen: `RUNTIME_OPTIONS` that are set.
        inputs: consumer settings by topic.
        producer: producer settings.
    """
    specs: tuple[ConsumerSpec | ProducerSpec | None, ...] = (*inputs.values(), producer)
    encrypts = any(spec is not None and spec.crypto_config is not None for spec in specs)
    said = {**chosen, **({ENCRYPTION_MARK: True} if encrypts else {})}
    return json.dumps(said) if said else ""


def _subscription_type(config: FunctionConfig) -> str:
    if config.retain_ordering or config.processing_guarantees == EFFECTIVELY_ONCE or config.runtime_env == SPARK:
        return "FAILOVER"
    return "KEY_SHARED" if config.retain_key_ordering else "SHARED"


def from_details(details: FunctionDetails) -> FunctionConfig:
    """Convert a record to the complete config that it was created from."""
    config = from_message(FunctionConfig, details)
    return replace(
        config,
        # Our records have all of these; in records of other systems they may be empty.
        user_config=config.user_config or {},
        max_message_retries=details.retryDetails.maxMessageRetries if details.HasField("retryDetails") else None,
        parallelism=details.parallelism,
        resources=Resources(cpu=details.resources.cpu, ram=details.resources.ram, disk=details.resources.disk),
        producer=from_message(ProducerSpec, details.sink.producerSpec),
        **runtime_options(config.custom_runtime_options),
    )


def to_json(metadata: FunctionMetaData) -> dict[str, Any]:
    """Return the response to GET: Pulsar's fields in Pulsar's order, without empty fields.

    The `RUNTIME_OPTIONS` are our additions, and only included if set.
    """
    return show(from_details(metadata.functionDetails))


def merge(existing: FunctionConfig, sent: FunctionConfig) -> FunctionConfig:
    """Return the config after an update.

    Args:
        existing: the complete stored config.
        sent: the request.

    Raises:
        InvalidConfig: the update changes a fixed field.
    """
    check_fixed(existing, sent)
    _check_position(existing, sent)
    check_code_stays(existing, sent)
    _check_runtime(existing, sent)
    resources = existing.resources
    if resources is not None and sent.resources is not None:
        resources = overlay(resources, sent.resources)
    return replace(
        overlay(existing, sent),
        input_specs=merge_inputs(existing.input_specs, sent.input_specs),
        resources=resources or sent.resources,
        subscription_position=existing.subscription_position,
        refused=sent.refused,
    )


def _check_position(existing: FunctionConfig, sent: FunctionConfig) -> None:
    if sent.subscription_position == "Earliest" != existing.subscription_position:
        raise InvalidConfig(
            "subscriptionPosition cannot be altered, as the subscription already exists: remove subscriptionPosition, "
            "and run functions reset-cursor to reprocess earlier messages"
        )


def _check_runtime(existing: FunctionConfig, sent: FunctionConfig) -> None:
    if sent.runtime_env is not None and sent.runtime_env != existing.runtime_env and SPARK in (
        sent.runtime_env, existing.runtime_env,
    ):  # fmt: skip
        raise InvalidConfig(
            f"runtimeEnv {existing.runtime_env or 'process'} cannot be altered to {sent.runtime_env}, as Spark "
            f"functions store their position differently: delete and recreate the function"
        )


def merge_inputs(existing: Mapping[str, ConsumerSpec], sent: Mapping[str, ConsumerSpec]) -> Mapping[str, ConsumerSpec]:
    """Return the inputs after an update, which may change the settings of inputs, but not add or remove inputs."""
    for topic, spec in sent.items():
        if topic not in existing:
            raise InvalidConfig("Input Topics cannot be altered")
        if spec.is_regex_pattern != existing[topic].is_regex_pattern:
            raise InvalidConfig(f"isRegexPattern for input topic {topic} cannot be altered")
    # A bare topic name in `inputs` must not reset the SerDe of the stored spec.
    return {**existing, **{topic: spec for topic, spec in sent.items() if spec != ConsumerSpec()}}
