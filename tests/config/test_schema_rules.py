"""Schemas, SerDes and classes in a function's config: what goes into the record and back, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from magnetar.config.connector_conversion import check_sink, read_sink_config
from magnetar.config.conversion import from_details, merge, read_function_config, to_details, to_json
from magnetar.config.function_config import FunctionConfig
from magnetar.config.rules import check, with_defaults
from magnetar.errors import InvalidConfig
from magnetar.wire.functions_pb2 import FunctionMetaData

MINIMAL = {"className": "f.F", "inputs": ["in"], "output": "out", "py": "f.py"}


def registered(**fields: Any) -> FunctionConfig:
    sent = read_function_config({**MINIMAL, **fields})
    config = with_defaults(replace(sent, tenant="public", namespace="default", name="f"))
    check(config)
    return config


def test_schemas_and_classes_are_in_the_record_and_in_what_get_answers() -> None:
    config = registered(
        inputSpecs={"in": {"schemaType": "json", "schemaProperties": {"a": "b"}}},
        outputSchemaType="AVRO",
        outputSchemaProperties={"c": "d"},
        inputTypeClassName="f.Order",
        outputTypeClassName="f.Receipt",
    )
    details = to_details(config)
    read = details.source.inputSpecs["in"]
    assert (read.schemaType, dict(read.schemaProperties)) == ("json", {"a": "b"})
    assert (details.source.typeClassName, details.sink.typeClassName) == ("f.Order", "f.Receipt")
    assert (details.sink.schemaType, dict(details.sink.schemaProperties)) == ("AVRO", {"c": "d"})
    answer = to_json(FunctionMetaData(functionDetails=details))
    assert answer["outputSchemaType"] == "AVRO"
    assert answer["outputSchemaProperties"] == {"c": "d"}
    assert answer["inputTypeClassName"] == "f.Order"
    assert "outputSchemaProperties" not in to_json(FunctionMetaData(functionDetails=to_details(registered())))
    kept = merge(from_details(details), read_function_config({"parallelism": 2}))
    assert (kept.input_type_class_name, kept.output_schema_type) == ("f.Order", "AVRO")


def test_custom_schemas_are_types_or_json_of_a_consumers_config() -> None:
    bare = registered(customSchemaInputs={"in": "STRING"}, customSchemaOutputs={"out": "JSON"})
    assert bare.input_specs["in"].schema_type == "STRING"
    assert bare.output_schema_type == "JSON"
    whole = registered(
        customSchemaInputs={"other": '{"schemaType": "JSON", "schemaProperties": {"a": "b"}, "receiverQueueSize": 5}'},
        customSchemaOutputs={"out": '{"schemaType": "AVRO", "schemaProperties": {"c": "d"}}'},
    )
    other = whole.input_specs["other"]
    assert (other.schema_type, other.schema_properties, other.receiver_queue_size) == ("JSON", {"a": "b"}, 5)
    assert (whole.output_schema_type, whole.output_schema_properties) == ("AVRO", {"c": "d"})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"inputSpecs": {"in": {"schemaType": "JSON", "serdeClassName": "f.S"}}},
            "Only one of schemaType or serdeClassName should be set in inputSpec",
        ),
        (
            {"inputSpecs": {"in": {"schemaType": "KEY_VALUE"}}},
            "inputSpecs[in].schemaType KEY_VALUE: key-value schemas are not supported; use a SerDe for the payload",
        ),
        ({"outputSchemaType": "JASON"}, "invalid outputSchemaType JASON: expected AVRO, BOOLEAN, "),
        (
            {"outputSchemaType": "auto_consume"},
            "outputSchemaType auto_consume is only supported for inputs: set the type of the topic's schema",
        ),
        (
            {"outputSchemaType": "JSON", "outputSerdeClassName": "JsonSerDe"},
            "Only one of outputSchemaType JSON or outputSerdeClassName JsonSerDe should be set",
        ),
        ({"outputSchemaType": "JSON", "output": ""}, "outputSchemaType JSON requires an output topic: set output"),
        (
            {"inputSpecs": {"in": {"schemaProperties": {"a": "b"}}}},
            "inputSpecs[in].schemaProperties requires schemaType: set schemaType, or remove schemaProperties",
        ),
        ({"outputSchemaProperties": {"a": "b"}}, "customSchemaOutputs: schemaProperties requires schemaType"),
        (
            {"inputTypeClassName": "f.T", "customSerdeInputs": {"in": "f.S"}},
            "inputTypeClassName f.T has no effect, as each input has a SerDe: remove one of them",
        ),
        (
            {"outputTypeClassName": "f.T", "outputSerdeClassName": "f.S"},
            "outputTypeClassName f.T has no effect with outputSerdeClassName f.S: remove one of them",
        ),
        (
            {"customSchemaOutputs": {"other": "JSON"}},
            'customSchemaOutputs: "other" is not the output topic: expected out',
        ),
        (
            {"customSchemaOutputs": {"out": "JSON"}, "outputSchemaType": "AVRO"},
            "outputSchemaType AVRO contradicts customSchemaOutputs JSON: set only one of them",
        ),
        ({"customSchemaInputs": {"in": "{"}}, "Incorrect custom schema inputs,Topic in: "),
        (
            {"customSchemaInputs": {"in": '{"schemaTipe": "JSON"}'}},
            "Incorrect custom schema inputs,Topic in: unknown field schemaTipe: did you mean schemaType?",
        ),
        (
            {"inputSpecs": {"in": {"schemaType": "JSON"}}, "runtimeEnv": "spark"},
            "inputSpecs[in].schemaType: Spark runs do not support schemas; remove this field",
        ),
        ({"outputSchemaType": "JSON", "runtimeEnv": "spark"}, "outputSchemaType: Spark runs do not support schemas"),
    ],
)
def test_contradictions_are_refused_with_both_named(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        registered(**fields)
    assert str(refused.value).startswith(reason)
    assert "\n" not in str(refused.value)


def test_sinks_refuse_schemas_of_their_inputs() -> None:
    config = read_sink_config({"archive": "builtin://file", "inputSpecs": {"in": {"schemaType": "JSON"}}})
    named = with_defaults(replace(config, tenant="public", namespace="default", name="s"))
    with pytest.raises(InvalidConfig, match=r"inputSpecs\[in\].schemaType: not supported yet"):
        check_sink(named)
