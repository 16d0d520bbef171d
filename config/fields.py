"""Reading the JSON of a FunctionConfig: what its fields say together.

A field that this version cannot honour is collected in `FunctionConfig.refused` instead of raised here, so that the
rules of Pulsar, with their known texts, speak first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidConfig
from ..wire.strict_json import NotJson, read_json
from .function_config import FIELDS_BY_NAME, ConsumerSpec, FunctionConfig
from .kinds import read_object, shown
from .table import Json, attributes, read_fields

_RUNTIME_OPTIONS = ("runtimeEnv", "minPartitions")


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
    options = values.get("customRuntimeOptions")
    for attribute, option in (("runtime_env", runtime_options(options)), ("min_partitions", min_partitions(options))):
        if option is not None and config.get(attribute) is None:
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


def runtime_options(text: str | None) -> str | None:
    """Return the runtimeEnv in the text of customRuntimeOptions.

    Raises:
        InvalidConfig: the text is no JSON object, or holds more than runtimeEnv and minPartitions.
    """
    chosen: str | None = _runtime_option(text, "runtimeEnv")
    return chosen


def min_partitions(text: str | None) -> int | None:
    """Return the minPartitions in the text of customRuntimeOptions; raises as `runtime_options`."""
    count: int | None = _runtime_option(text, "minPartitions")
    return count


def _runtime_option(text: str | None, name: str) -> Any:
    if not text:
        return None
    try:
        options = read_json(text)
    except NotJson:
        raise InvalidConfig(f"customRuntimeOptions must be JSON, not {shown(text)}") from None
    for key in read_object("customRuntimeOptions", options):
        if key not in _RUNTIME_OPTIONS:
            raise InvalidConfig(f"customRuntimeOptions: unknown field {key}; known are {', '.join(_RUNTIME_OPTIONS)}")
    value = options.get(name)
    return None if value is None else FIELDS_BY_NAME[name].kind.read(f"customRuntimeOptions.{name}", value)
