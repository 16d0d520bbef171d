"""Reading the JSON of a FunctionConfig: names, types, and a clear word for everything that does not fit.

Empty values ("", [], {}, and false for switches that are off by default) count as not sent: Pulsar's own tools send
them with every request. Only an empty `logTopic` or `output`, which none of them sends, says something: in an update it
takes the topic away. A field that this version cannot honour is collected in `FunctionConfig.refused` instead of
raised here, so that the rules of Pulsar, with their known texts, speak first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from ..errors import InvalidConfig
from ..wire.strict_json import NotJson, read_json
from .function_config import (
    COMPRESSIONS,
    GUARANTEES,
    POSITIONS,
    RUNTIME_ENVIRONMENTS,
    ConsumerSpec,
    FunctionConfig,
    ProducerSpec,
    Resources,
)

Json = Mapping[str, Any]
_Reader = Callable[[str, Any], Any]


def _text(name: str, value: Any) -> str | None:
    if not isinstance(value, str):
        raise InvalidConfig(f"{name} must be a text, not {_shown(value)}")
    return value or None


def _clearable(name: str, value: Any) -> str:
    return _text(name, value) or ""


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidConfig(f"{name} must be true or false, not {_shown(value)}")
    return value


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidConfig(f"{name} must be a whole number, not {_shown(value)}")
    if not -(1 << 63) <= value < 1 << 63:
        raise InvalidConfig(f"{name} {value} does not fit into 64 bits")
    return value


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidConfig(f"{name} must be a number, not {_shown(value)}")
    return float(value)


def _object(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidConfig(f"{name} must be an object, not {_shown(value)}")
    return value


def _text_map(name: str, value: Any) -> dict[str, str]:
    for key, item in _object(name, value).items():
        if not isinstance(item, str):
            raise InvalidConfig(f"{name}: the value of {key} must be a text, not {_shown(item)}")
    return dict(value)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidConfig(f"{name} must be a list of texts, not {_shown(value)}")
    return tuple(value)


def _one_of(*choices: str) -> _Reader:
    def read(name: str, value: Any) -> str | None:
        text = _text(name, value)
        if text is not None and text not in choices:
            raise InvalidConfig(f"{name} {text} is not one of {', '.join(choices)}")
        return text

    return read


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


_CONSUMER_FIELDS: dict[str, tuple[str, _Reader]] = {
    "schemaType": ("schema_type", _text),
    "serdeClassName": ("serde_class_name", _text),
    "regexPattern": ("is_regex_pattern", _flag),
    "isRegexPattern": ("is_regex_pattern", _flag),
    "schemaProperties": ("schema_properties", _text_map),
    "consumerProperties": ("consumer_properties", _text_map),
    "receiverQueueSize": ("receiver_queue_size", _integer),
    "cryptoConfig": ("crypto_config", _object),
    "poolMessages": ("pool_messages", _flag),
    "messagePayloadProcessorConfig": ("payload_processor", _object),
}

_PRODUCER_FIELDS: dict[str, tuple[str, _Reader]] = {
    "maxPendingMessages": ("max_pending_messages", _integer),
    "maxPendingMessagesAcrossPartitions": ("max_pending_messages_across_partitions", _integer),
    "useThreadLocalProducers": ("use_thread_local_producers", _flag),
    "cryptoConfig": ("crypto_config", _object),
    "batchBuilder": ("batch_builder", _text),
    "compressionType": ("compression_type", _one_of(*COMPRESSIONS)),
    "batchingConfig": ("batching_config", _object),
}

_RESOURCE_FIELDS: dict[str, tuple[str, _Reader]] = {
    "cpu": ("cpu", _number),
    "ram": ("ram", _integer),
    "disk": ("disk", _integer),
}


def _record(kind: type, fields: dict[str, tuple[str, _Reader]]) -> _Reader:
    def read(name: str, value: Any) -> Any:
        found = {}
        for key, item in _object(name, value).items():
            if key not in fields:
                raise _unknown(f"{name}: unknown field", key, fields)
            attribute, reader = fields[key]
            if item is not None:
                found[attribute] = reader(f"{name}.{key}", item)
        return kind(**found)

    return read


def _unknown(what: str, key: str, known: Mapping[str, object]) -> InvalidConfig:
    near = get_close_matches(key, known, n=1, cutoff=0.5)
    advice = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
    return InvalidConfig(f"{what} {key}; {advice}")


_consumer: _Reader = _record(ConsumerSpec, _CONSUMER_FIELDS)

_FIELDS: dict[str, tuple[str, _Reader]] = {
    "tenant": ("tenant", _text),
    "namespace": ("namespace", _text),
    "name": ("name", _text),
    "className": ("class_name", _text),
    "output": ("output", _clearable),
    "producerConfig": ("producer", _record(ProducerSpec, _PRODUCER_FIELDS)),
    "outputSchemaType": ("output_schema_type", _text),
    "outputSerdeClassName": ("output_serde_class_name", _text),
    "logTopic": ("log_topic", _clearable),
    "processingGuarantees": ("processing_guarantees", _one_of(*GUARANTEES)),
    "retainOrdering": ("retain_ordering", _flag),
    "retainKeyOrdering": ("retain_key_ordering", _flag),
    "forwardSourceMessageProperty": ("forward_source_message_property", _flag),
    "userConfig": ("user_config", _object),
    "secrets": ("secrets", _object),
    "runtime": ("runtime", _one_of("PYTHON", "JAVA", "GO")),
    "runtimeEnv": ("runtime_env", _one_of(*RUNTIME_ENVIRONMENTS)),
    "minPartitions": ("min_partitions", _integer),
    "autoAck": ("auto_ack", _flag),
    "maxMessageRetries": ("max_message_retries", _integer),
    "deadLetterTopic": ("dead_letter_topic", _text),
    "subName": ("sub_name", _text),
    "subscriptionPosition": ("subscription_position", _one_of(*POSITIONS)),
    "parallelism": ("parallelism", _integer),
    "resources": ("resources", _record(Resources, _RESOURCE_FIELDS)),
    "windowConfig": ("window_config", _object),
    "timeoutMs": ("timeout_ms", _integer),
    "cleanupSubscription": ("cleanup_subscription", _flag),
    "runtimeFlags": ("runtime_flags", _text),
    "fqfn": ("sent_fqfn", _text),
}
"""Fields that map one to one; the inputs, the package's path and the runtime options have readers of their own."""

_REFUSED: dict[str, tuple[_Reader, str]] = {
    "customSchemaInputs": (_object, "schemas are not supported yet; leave it out"),
    "customSchemaOutputs": (_object, "schemas are not supported yet; leave it out"),
    "inputTypeClassName": (_text, "a Python function has no type classes; leave it out"),
    "outputTypeClassName": (_text, "a Python function has no type classes; leave it out"),
    "batchBuilder": (_text, "it is not supported yet; leave it out"),
    "skipToLatest": (_flag, "it is not supported yet; leave it out, or use subscriptionPosition Latest"),
    "exposePulsarAdminClientEnabled": (_flag, "it is not supported yet; leave it out"),
    "jar": (_text, "Java functions are not supported; give a Python file as py"),
    "go": (_text, "Go functions are not supported; give a Python file as py"),
    "functionType": (_text, "built-in functions are not supported yet; give a Python file as py"),
    "maxPendingAsyncRequests": (_integer, "it is not supported yet; leave it out"),
}
"""Fields without a place in `FunctionConfig`: read for their type, refused when they ask for anything."""

_OTHER_FIELDS = (
    "inputs", "topicsPattern", "customSerdeInputs", "inputSpecs", "py", "customRuntimeOptions",
)  # fmt: skip
_DEFAULT_PENDING_REQUESTS = 1000
_RUNTIME_OPTIONS = ("runtimeEnv", "minPartitions")
KNOWN_FIELDS: Mapping[str, object] = dict.fromkeys((*_FIELDS, *_REFUSED, *_OTHER_FIELDS))


def read_function_config(json_object: Json) -> FunctionConfig:
    """Return the config that a JSON object describes; nothing is defaulted or checked against other fields.

    Raises:
        InvalidConfig: an unknown field (with the nearest known name) or a value of the wrong type.
    """
    sent = {name: value for name, value in json_object.items() if value is not None}
    values: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for name, value in sent.items():
        if name in _FIELDS:
            attribute, reader = _FIELDS[name]
            values[attribute] = reader(name, value)
        elif name in _REFUSED:
            reader, reason = _REFUSED[name]
            if reader(name, value) and not (name == "maxPendingAsyncRequests" and value == _DEFAULT_PENDING_REQUESTS):
                refused[name] = reason
        elif name not in KNOWN_FIELDS:
            raise _unknown("unknown field", name, KNOWN_FIELDS)
    _read_package(sent, values)
    _read_runtime_options(sent, values)
    return FunctionConfig(**values, input_specs=_read_inputs(sent), refused=refused)


def _read_inputs(sent: Json) -> dict[str, ConsumerSpec]:
    """Apply the ways to give inputs in Pulsar's order; a later one refines the same topic."""
    specs: dict[str, ConsumerSpec] = {}
    for topic in _texts("inputs", sent.get("inputs", [])):
        specs[topic] = ConsumerSpec()
    if pattern := _text("topicsPattern", sent.get("topicsPattern", "")):
        specs[pattern] = ConsumerSpec(is_regex_pattern=True)
    for topic, serde in _text_map("customSerdeInputs", sent.get("customSerdeInputs", {})).items():
        specs[topic] = ConsumerSpec(serde_class_name=serde or None)
    for topic, spec in _object("inputSpecs", sent.get("inputSpecs", {})).items():
        specs[topic] = _consumer(f"inputSpecs[{topic}]", {} if spec is None else spec)
    return specs


def _read_package(sent: Json, values: dict[str, Any]) -> None:
    """`py` is a path on the client's disk (any system's): it tells the language and the file's name, no more."""
    path = _text("py", sent.get("py", ""))
    if path:
        if values.get("runtime") not in (None, "PYTHON"):
            raise InvalidConfig(f"runtime {values['runtime']} contradicts py, a Python file; leave runtime out")
        values["runtime"] = "PYTHON"
        values["file_name"] = PureWindowsPath(PurePosixPath(path).name).name
    elif sent.get("jar"):
        values["runtime"] = "JAVA"
    elif sent.get("go"):
        values["runtime"] = "GO"


def _read_runtime_options(sent: Json, values: dict[str, Any]) -> None:
    text = _text("customRuntimeOptions", sent.get("customRuntimeOptions", ""))
    for attribute, option in (("runtime_env", runtime_options(text)), ("min_partitions", min_partitions(text))):
        if option is not None and values.get(attribute) is None:
            values[attribute] = option


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
        raise InvalidConfig(f"customRuntimeOptions must be JSON, not {_shown(text)}") from None
    for key in _object("customRuntimeOptions", options):
        if key not in _RUNTIME_OPTIONS:
            raise InvalidConfig(f"customRuntimeOptions: unknown field {key}; known are {', '.join(_RUNTIME_OPTIONS)}")
    value = options.get(name)
    return None if value is None else _FIELDS[name][1](f"customRuntimeOptions.{name}", value)
