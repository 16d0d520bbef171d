"""Reading the JSON of a FunctionConfig: what its fields say together.

A field that this version cannot honour is collected in `FunctionConfig.refused` instead of raised here, so that the
rules of Pulsar, with their known texts, speak first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidConfig
from ..wire.strict_json import NotJson, read_json
from .function_config import FIELDS_BY_NAME, RUNTIME_OPTIONS, ConsumerSpec, FunctionConfig
from .kinds import read_object, shown
from .table import Json, attributes, read_fields


def read_function_config(json_object: Json) -> FunctionConfig:
    """Return the config that a JSON object describes; nothing is defaulted or checked against other fields.

    Raises:
        InvalidConfig: an unknown field (with the nearest known name) or a value of the wrong type.
    """
    sent = {name: value for name, value in json_object.items() if value is not None}
    values = read_fields(FIELDS_BY_NAME, sent)
    config = attributes(FIELDS_BY_NAME, values)
    config["input_specs"] = _inputs(values)
    if language := _language(values):
        config["runtime"] = language
    for attribute, option in runtime_options(values.get("customRuntimeOptions")).items():
        if config.get(attribute) is None:
            config[attribute] = option
    return FunctionConfig(**config, refused=_refused(values))


def _refused(values: Json) -> dict[str, str]:
    refused = {}
    for name, value in values.items():
        field = FIELDS_BY_NAME[name]
        if field.refused and not field.attribute and value and value != field.default:
            refused[name] = field.refused
    return refused


def _inputs(values: Json) -> Mapping[str, ConsumerSpec]:
    """Apply the ways to give inputs in Pulsar's order; a later one refines the same topic."""
    specs: dict[str, ConsumerSpec] = dict.fromkeys(values.get("inputs", ()), ConsumerSpec())
    if pattern := values.get("topicsPattern"):
        specs[pattern] = ConsumerSpec(is_regex_pattern=True)
    for topic, serde in values.get("customSerdeInputs", {}).items():
        specs[topic] = ConsumerSpec(serde_class_name=serde or None)
    specs.update(values.get("inputSpecs", {}))
    return specs


def _language(values: Json) -> str | None:
    """Return the language that the package tells."""
    if values.get("py"):
        if values.get("runtime") not in (None, "PYTHON"):
            raise InvalidConfig(f"runtime {values['runtime']} contradicts py, a Python file; leave runtime out")
        return "PYTHON"
    return "JAVA" if values.get("jar") else "GO" if values.get("go") else None


def runtime_options(text: str | None) -> dict[str, Any]:
    """Return the attributes of a config that the text of customRuntimeOptions gives.

    Raises:
        InvalidConfig: the text is no JSON object, holds other fields than `RUNTIME_OPTIONS`, or a wrong value.
    """
    if not text:
        return {}
    try:
        options = read_object("customRuntimeOptions", read_json(text))
    except NotJson:
        raise InvalidConfig(f"customRuntimeOptions must be JSON, not {shown(text)}") from None
    for name in options:
        if name not in RUNTIME_OPTIONS:
            raise InvalidConfig(f"customRuntimeOptions: unknown field {name}; known are {', '.join(RUNTIME_OPTIONS)}")
    return attributes(FIELDS_BY_NAME, read_fields(FIELDS_BY_NAME, options, "customRuntimeOptions"))
