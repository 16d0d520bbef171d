"""Validation rules for schemas, SerDes and classes of a function's topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..errors import InvalidConfig
from .function_config import NOT_YET, SPARK, ConsumerSpec, FunctionConfig

SCHEMA_TYPES = frozenset(
    (
        "NONE", "BYTES", "STRING", "JSON", "AVRO", "PROTOBUF", "PROTOBUF_NATIVE", "BOOLEAN", "INT8", "INT16", "INT32",
        "INT64", "FLOAT", "DOUBLE", "DATE", "TIME", "TIMESTAMP", "INSTANT", "LOCAL_DATE", "LOCAL_TIME",
        "LOCAL_DATE_TIME",
    )
)  # fmt: skip
"""Schema types of a function's topics. Inputs also support AUTO_CONSUME."""
_REFUSED = {
    "KEY_VALUE": "key-value schemas are not supported; use a SerDe for the payload, and context.get_message_key()",
    "AUTO": "not supported; use AUTO_CONSUME for inputs",
    "AUTO_PUBLISH": "not supported; set the type of the topic's schema",
    "AUTO_PRODUCE_BYTES": "not supported; set the type of the topic's schema",
}


def check_schemas(config: FunctionConfig) -> None:
    """Reject unknown schemas, and schemas that contradict other settings.

    Raises:
        InvalidConfig: a setting is invalid. The message contains the settings and the remedy.
    """
    for topic, spec in config.input_specs.items():
        where = f"inputSpecs[{topic}]"
        _check_type(f"{where}.schemaType", spec.schema_type, is_input=True)
        if spec.schema_properties and not spec.schema_type:
            raise InvalidConfig(
                f"{where}.schemaProperties requires schemaType: set schemaType, or remove schemaProperties"
            )
    output_type, serde = config.output_schema_type, config.output_serde_class_name
    _check_type("outputSchemaType", output_type, is_input=False)
    if output_type and serde:
        raise InvalidConfig(f"Only one of outputSchemaType {output_type} or outputSerdeClassName {serde} should be set")
    if output_type and not config.output:
        raise InvalidConfig(
            f"outputSchemaType {output_type} requires an output topic: set output, or remove outputSchemaType"
        )
    if config.output_schema_properties and not output_type:
        raise InvalidConfig("customSchemaOutputs: schemaProperties requires schemaType")
    specs = config.input_specs.values()
    if config.input_type_class_name and specs and all(spec.serde_class_name for spec in specs):
        raise InvalidConfig(
            f"inputTypeClassName {config.input_type_class_name} has no effect, as each input has a SerDe: remove one "
            f"of them"
        )
    if config.output_type_class_name and serde:
        raise InvalidConfig(
            f"outputTypeClassName {config.output_type_class_name} has no effect with outputSerdeClassName {serde}: "
            f"remove one of them"
        )
    if config.runtime_env == SPARK:
        for name, reason in _of_spark(config):
            raise InvalidConfig(f"{name}: {reason}")


def _check_type(setting: str, type_name: str | None, *, is_input: bool) -> None:
    if not type_name or "." in type_name:
        return
    name = type_name.upper()
    if name in _REFUSED:
        raise InvalidConfig(f"{setting} {type_name}: {_REFUSED[name]}")
    if name in SCHEMA_TYPES or (is_input and name == "AUTO_CONSUME"):
        return
    if name == "AUTO_CONSUME":
        raise InvalidConfig(f"{setting} {type_name} is only supported for inputs: set the type of the topic's schema")
    raise InvalidConfig(f"invalid {setting} {type_name}: expected {', '.join(sorted(SCHEMA_TYPES))}, or module.Class")


def _of_spark(config: FunctionConfig) -> Iterator[tuple[str, str]]:
    why = "Spark runs do not support schemas; remove this field, and annotate the function or set a SerDe"
    for topic, spec in config.input_specs.items():
        if spec.schema_type:
            yield f"inputSpecs[{topic}].schemaType", why
    if config.output_schema_type:
        yield "outputSchemaType", why


def schemas_of_sinks(specs: Mapping[str, ConsumerSpec]) -> Iterator[tuple[str, str]]:
    """Yield the unsupported settings of sink inputs, with the reason."""
    for topic, spec in specs.items():
        if spec.schema_type:
            yield f"inputSpecs[{topic}].schemaType", NOT_YET
        if spec.schema_properties:
            yield f"inputSpecs[{topic}].schemaProperties", NOT_YET
