"""Find a function's schema for a topic, from `schemaType` and the class that the function expects.

Records without a class are dicts by the topic's own schema: inputs are decoded with the schema that they were written
with, and outputs are encoded with the newest.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from typing import Any

from ...client.schemas.auto import AutoConsumeSchema
from ...client.schemas.avro_schema import AvroSchema
from ...client.schemas.json_schema import JsonSchema
from ...client.schemas.primitives import BytesSchema, primitive
from ...client.schemas.protobuf_native import ProtobufNativeSchema
from ...client.schemas.protobuf_schema import ProtobufSchema
from ...client.schemas.schema import TYPE_NAMES, Schema, SchemaInfo
from ...errors import FunctionLoadError, InvalidConfig, SchemaSerializationError
from ...wire import pulsar_api_pb2 as pb
from ..loading.loader import Home, find_object
from .model_schemas import ModelJsonSchema
from .official import OfficialSchema, RecordAvroSchema, is_official
from .wanted import Form, Wanted

_NUMBERS = {name: number for number, name in TYPE_NAMES.items()} | {"NONE": BytesSchema.info.kind}
_FORMS_OF: dict[str, Form] = {
    "BYTES": Form.OCTETS,
    "NONE": Form.OCTETS,
    "STRING": Form.TEXT,
    "BOOLEAN": Form.TRUTH,
    **dict.fromkeys(("INT8", "INT16", "INT32", "INT64"), Form.WHOLE),
    **dict.fromkeys(("FLOAT", "DOUBLE"), Form.REAL),
}
_CLASSES_OF: dict[str, type] = {
    **dict.fromkeys(("DATE", "TIMESTAMP", "INSTANT", "LOCAL_DATE_TIME"), datetime),
    **dict.fromkeys(("TIME", "LOCAL_TIME"), time),
    "LOCAL_DATE": date,
}
_DICTS = (Form.ANY, Form.OBJECT, Form.JSON)


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """A function's schema for one of its topics.

    Attributes:
        schema: schema to register with the broker, and to convert values with.
        topics_kind: required type of the topic's own schema if values are dicts of that schema, otherwise None.
    """

    schema: Schema[Any]
    topics_kind: int | None = None


class TopicAvroSchema(AutoConsumeSchema):
    """Decodes dicts with the version of the topic's AVRO schema that they were written with."""

    def __str__(self) -> str:
        return "schema AVRO of the topic"

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> Any:
        """Decode a dict; raises SchemaSerializationError without a writer's AVRO schema."""
        if writer is None:
            raise SchemaSerializationError(f"{self}: the message has no schema version, and the topic has no schema")
        if writer.kind != pb.Schema.Avro:
            raise SchemaSerializationError(f"{self}: the message was written with schema {writer.type_name}")
        return super().decode(data, writer)


class BoundSchema(Schema[Any]):
    """Encodes dicts with the newest schema of the output topic, which is set when the topic is opened.

    Attributes:
        kind: schema type, JSON or AVRO.
    """

    def __init__(self, kind: int) -> None:
        """Create the schema; call `bind` before use."""
        self.kind = kind
        self.info = SchemaInfo(BytesSchema.info.kind)
        self._avro: AvroSchema[Any] | None = None

    def __str__(self) -> str:
        return f"schema {TYPE_NAMES[self.kind]} of the topic"

    def bind(self, newest: SchemaInfo) -> None:
        """Set the schema to encode with.

        Raises:
            InvalidConfig: the schema is invalid, or no Avro library is installed.
        """
        if self.kind == pb.Schema.Avro:
            self._avro = AvroSchema(newest.definition.decode())
        self.info = newest

    def encode(self, value: Any) -> bytes:
        """Encode a dict; raises SchemaSerializationError if the schema rejects it."""
        if self._avro is None:
            raise SchemaSerializationError(f"{self} is not loaded yet")
        if not isinstance(value, dict):
            self.refuse(value, "a dict")
        return self._avro.encode(value)

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> Any:
        """Raise SchemaSerializationError: this schema only encodes."""
        self.refuse(data, "no value, as it is write-only")


def topic_schema(
    setting: str, type_name: str, properties: Mapping[str, str], wanted: Wanted, home: Home, *, is_input: bool
) -> TopicSchema:
    """Return the schema that a setting assigns to a topic.

    Args:
        setting: setting name for errors, such as ``inputSpecs[orders].schemaType``.
        type_name: value of the setting: a case-insensitive type, or a class.
        properties: schema properties.
        wanted: type that the function expects.
        home: finds classes of the package.
        is_input: whether the topic is read.

    Raises:
        FunctionLoadError: the type is unknown or unsupported, contradicts the function's type, or requires a class.
    """
    shown = f"{setting} {type_name}"
    name = type_name.upper()
    try:
        if name in _NUMBERS and "." not in type_name:
            found = _builtin(shown, name, wanted, is_input)
        else:
            found = TopicSchema(_custom(shown, type_name, properties, wanted, home))
    except InvalidConfig as error:
        raise FunctionLoadError(f"{shown}, but {wanted}: {error}") from error
    if properties and found.topics_kind is None:
        found.schema.info = replace(found.schema.info, properties=dict(properties))
    elif properties:
        raise FunctionLoadError(f"{shown} without a class uses the topic's own schema: remove schemaProperties")
    return found


def _builtin(shown: str, name: str, wanted: Wanted, is_input: bool) -> TopicSchema:
    kind = _NUMBERS[name]
    simple = primitive(kind)
    if simple is not None:
        is_fitting = wanted.form in (Form.ANY, _FORMS_OF.get(name)) or wanted.kind is _CLASSES_OF.get(
            name, NotImplemented
        )
        if not is_fitting:
            python = _FORMS_OF[name].value if name in _FORMS_OF else _CLASSES_OF[name].__name__
            raise FunctionLoadError(f"{shown} is {python} in Python, but {wanted}: change one of them")
        return TopicSchema(simple)
    match name:
        case "JSON":
            return _json(shown, wanted, is_input)
        case "AVRO":
            return _avro(shown, wanted, is_input)
        case "PROTOBUF" | "PROTOBUF_NATIVE":
            if wanted.form is not Form.MESSAGE:
                raise _needs(shown, wanted, "a message class that protoc generated", is_input)
            is_native = name == "PROTOBUF_NATIVE"
            return TopicSchema(ProtobufNativeSchema(wanted.kind) if is_native else ProtobufSchema(wanted.kind))
        case "AUTO_CONSUME" if is_input:
            if wanted.form is not Form.ANY:
                raise FunctionLoadError(
                    f"{shown} returns values of the topic's schema, but {wanted}: change one of them"
                )
            return TopicSchema(AutoConsumeSchema())
    raise FunctionLoadError(f"{shown} is not supported: use a SerDe, which receives the payload")


def _json(shown: str, wanted: Wanted, is_input: bool) -> TopicSchema:
    match wanted.form:
        case Form.DATACLASS:
            return TopicSchema(JsonSchema(wanted.kind))
        case Form.MODEL | Form.STRUCT:
            return TopicSchema(ModelJsonSchema(wanted))
        case Form.RECORD:
            return TopicSchema(record_json_schema(wanted))
        case form if form in _DICTS:
            return TopicSchema(AutoConsumeSchema() if is_input else BoundSchema(pb.Schema.Json), pb.Schema.Json)
    raise _needs(shown, wanted, "a dict, a dataclass, a model of pydantic or msgspec, or a Record", is_input)


def _avro(shown: str, wanted: Wanted, is_input: bool) -> TopicSchema:
    match wanted.form:
        case Form.DATACLASS:
            return TopicSchema(AvroSchema(wanted.kind))
        case Form.RECORD:
            return TopicSchema(RecordAvroSchema(_official("AvroSchema", wanted), wanted.kind))
        case form if form in _DICTS:
            return TopicSchema(TopicAvroSchema() if is_input else BoundSchema(pb.Schema.Avro), pb.Schema.Avro)
    raise _needs(shown, wanted, "a dict, a dataclass or a Record", is_input)


def _needs(shown: str, wanted: Wanted, what: str, is_input: bool) -> FunctionLoadError:
    if wanted.form is Form.ANY:
        annotated, setting = ("parameter", "inputTypeClassName") if is_input else ("return type", "outputTypeClassName")
        return FunctionLoadError(f"{shown} requires {what}: annotate the {annotated} with it, or set {setting}")
    return FunctionLoadError(f"{shown} requires {what}, but {wanted}: change one of them")


def record_json_schema(wanted: Wanted) -> Schema[Any]:
    """Return the official client's JSON schema of a Record.

    Raises:
        FunctionLoadError: the official client rejects the class.
    """
    return OfficialSchema(_official("JsonSchema", wanted))


def _official(name: str, wanted: Wanted) -> Any:
    """Create a schema of a Record with a schema class of the official client."""
    try:
        return getattr(importlib.import_module("pulsar.schema"), name)(wanted.kind)
    except Exception as error:
        raise FunctionLoadError(f"{wanted}, which {name} of pulsar.schema rejects: {error}") from error


def _custom(shown: str, type_name: str, properties: Mapping[str, str], wanted: Wanted, home: Home) -> Schema[Any]:
    """Create a schema from a schema class of the package.

    As in Pulsar, it is created without arguments, with the function's class, or with the class and the properties,
    depending on its constructor.
    """
    module_name, _, attribute = type_name.rpartition(".")
    if not module_name:
        raise FunctionLoadError(f"{shown} is not a schema type: use module.Class for your own class")
    found = find_object(home, module_name, attribute, shown)
    if not inspect.isclass(found):
        raise FunctionLoadError(f"{shown} names a {type(found).__name__}, not a class")
    try:
        count = sum(one.default is one.empty for one in inspect.signature(found).parameters.values())
    except (TypeError, ValueError):
        count = 0
    with home.loading.step(f"creating an instance of {shown}"):
        made = found(*(wanted.kind, dict(properties))[:count])
    if isinstance(made, Schema):
        return made
    if is_official(made):
        return OfficialSchema(made)
    raise FunctionLoadError(
        f"{shown} is neither a schema of magnetar.client nor one of pulsar.schema: derive it from one of them"
    )
