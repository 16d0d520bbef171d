"""Select a function's decoders and encoder: from the config first, then from annotations.

An explicit SerDe or schema takes precedence; a contradicting annotation is an error that names both. Otherwise the
annotation is used, and without one messages are decoded by `IdentitySerDe`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ...api.serde import IdentitySerDe, JsonSerDe, SerDe
from ...client.schemas.schema import Schema
from ...errors import FunctionLoadError, InvalidConfig
from ...wire import pulsar_api_pb2 as pb
from ...wire.functions_pb2 import FunctionDetails
from ..loading.loader import Home, find_object, load_serde
from .annotations import annotations_of
from .objects import ModelSerDe, SchemaSerDe, StructSerDe
from .plain import CheckedJsonSerDe, NumberSerDe, OctetsSerDe, TextSchemaSerDe, TextSerDe, TruthSerDe
from .wanted import JSON_FORMS, PLAIN_FORMS, Form, Wanted, wanted
from .writers import Found, WriterSerDe

if TYPE_CHECKING:
    from .topic_schemas import TopicSchema

_CLASSES: dict[str, Any] = {
    **{kind.__name__: kind for kind in (str, bytes, int, float, bool, dict, list)},
    "[B": bytes,
    "java.lang.String": str,
    "java.lang.Boolean": bool,
    **dict.fromkeys((f"java.lang.{name}" for name in ("Byte", "Short", "Integer", "Long")), int),
    **dict.fromkeys(("java.lang.Float", "java.lang.Double"), float),
}
"""Class names of built-in types, and of their equivalents in Java."""
_REMEDY = (
    "expected str, bytes, int, float, bool, dict, list, a dataclass, a pydantic or msgspec model, a Protocol Buffers"
    " message or a pulsar.schema Record; or set a SerDe or a schemaType"
)


@dataclass(slots=True)
class Values:
    """Converters between a function's messages and values.

    Attributes:
        inputs: decoder of each input topic, by configured name.
        output: encoder of return values.
        input_schemas: schemas of the topics that have one.
        output_schema: schema of the output, or None.
    """

    inputs: dict[str, SerDe] = field(default_factory=dict)
    output: SerDe = field(default_factory=IdentitySerDe)
    input_schemas: dict[str, TopicSchema] = field(default_factory=dict)
    output_schema: TopicSchema | None = None


class Topics(Protocol):
    """The topics of a function, which are opened after their schemas are set."""

    def use(self, inputs: dict[str, TopicSchema], output_topic: str, output: TopicSchema | None) -> None:
        """Set the schemas of topics, before a topic is opened."""

    def writer(self, schema: Schema[Any], topic: str, version: bytes) -> Found:
        """Return the schema that messages were written with."""


def load_values(
    details: FunctionDetails, home: Home, function: Callable[..., Any], endpoints: Topics | None = None
) -> Values:
    """Return the converters of a function's messages, on the function's thread.

    Args:
        details: the function's details.
        home: finds classes of the package.
        function: the function.
        endpoints: topics to open with schemas; None if the config names no schema.

    Raises:
        FunctionLoadError: a class is missing, settings and annotations contradict each other, or an annotation is not a
            type of messages.
    """
    values = Values()
    found = annotations_of(function)
    for text in found.unresolved:
        logging.getLogger(f"{details.tenant}/{details.namespace}/{details.name}").warning(
            "cannot resolve annotation %s of %s; messages are decoded as without an annotation",
            text, details.className,
        )  # fmt: skip
    taken = _with_class(
        wanted(found.input, f"parameter {found.parameter} of {details.className}"),
        details.source.typeClassName, "inputTypeClassName", home,
    )  # fmt: skip
    returned = _with_class(
        wanted(found.output, f"the return type of {details.className}"),
        details.sink.typeClassName, "outputTypeClassName", home,
    )  # fmt: skip
    for topic, given in details.source.inputSpecs.items():
        where = f"inputSpecs[{topic}]"
        if given.schemaType:
            from .topic_schemas import topic_schema  # imports all client schemas

            schema = values.input_schemas[topic] = topic_schema(
                f"{where}.schemaType", given.schemaType, given.schemaProperties, taken, home, is_input=True
            )
            values.inputs[topic] = _of_input_schema(schema, taken, endpoints)
        elif given.serdeClassName:
            values.inputs[topic] = _named(f"{where}.serdeClassName", given.serdeClassName, taken, home)
        else:
            values.inputs[topic] = _of_input(taken)
    sink = details.sink
    if sink.schemaType:
        from .topic_schemas import topic_schema

        schema = values.output_schema = topic_schema(
            "outputSchemaType", sink.schemaType, sink.schemaProperties, returned, home, is_input=False
        )
        values.output = _of_output_schema(schema, returned)
    elif sink.serDeClassName:
        values.output = _named("outputSerdeClassName", sink.serDeClassName, returned, home)
    else:
        values.output = _of_output(returned)
    if endpoints is not None:
        endpoints.use(values.input_schemas, sink.topic, values.output_schema)
    return values


def _with_class(annotated: Wanted, class_name: str, setting: str, home: Home) -> Wanted:
    """Return the expected type of a value from its annotation and a setting that names a class."""
    if not class_name:
        return annotated
    found = _CLASSES.get(class_name)
    if found is None:
        module_name, _, attribute = class_name.rpartition(".")
        if not module_name:
            raise FunctionLoadError(
                f"{setting} {class_name!r} is not a class: expected module.Class for a class of the package"
            )
        found = find_object(home, module_name, attribute, f"{setting} {class_name!r}")
    named = wanted(found, f"{setting} {class_name}")
    if annotated.form is Form.ANY:
        return named
    is_same = annotated.kind is named.kind if annotated.kind is not None else annotated.form is named.form
    if not is_same:
        raise FunctionLoadError(f"{named}, but {annotated}: remove one of them")
    return annotated


def _named(setting: str, class_name: str, side: Wanted, home: Home) -> SerDe:
    """Return the SerDe named in the config."""
    serde = load_serde(home, class_name)
    forms = PLAIN_FORMS if type(serde) is IdentitySerDe else JSON_FORMS if type(serde) is JsonSerDe else None
    if forms is not None and side.form not in forms:
        given = ", ".join(sorted(form.value for form in forms - {Form.ANY, Form.JSON}))
        raise FunctionLoadError(f"{setting} {class_name} supports {given}, but {side}: remove one of them")
    return serde


def _of_input_schema(found: TopicSchema, taken: Wanted, endpoints: Topics | None) -> SerDe:
    from ...client.schemas.primitives import StringSchema

    schema = found.schema
    if schema.needs_writer and not _is_plain_json(found):
        if endpoints is None:
            raise FunctionLoadError(f"{schema} requires a broker that stores writers' schemas")
        return WriterSerDe(schema, taken, partial(endpoints.writer, schema))
    if _is_plain_json(found):
        return CheckedJsonSerDe(taken) if taken.form is Form.OBJECT else JsonSerDe()
    return TextSchemaSerDe(schema) if isinstance(schema, StringSchema) else SchemaSerDe(schema, taken)


def _of_output_schema(found: TopicSchema, returned: Wanted) -> SerDe:
    from ...client.schemas.primitives import StringSchema
    from .topic_schemas import BoundSchema

    schema = found.schema
    if _is_plain_json(found):
        where = returned.where or "outputSchemaType JSON"
        return CheckedJsonSerDe(Wanted(Form.OBJECT, dict, returned.shown if returned.where else "dict", where))
    if isinstance(schema, StringSchema):
        return TextSchemaSerDe(schema)
    return SchemaSerDe(schema, Wanted() if isinstance(schema, BoundSchema) else returned)


def _is_plain_json(found: TopicSchema) -> bool:
    """Return whether values are JSON dicts, which need no schema definition."""
    return found.topics_kind == pb.Schema.Json


def _of_input(taken: Wanted) -> SerDe:
    """Return the SerDe for an input with this annotation."""
    match taken.form:
        case Form.ANY:
            return IdentitySerDe()
        case Form.TEXT:
            return TextSerDe()
        case Form.OCTETS:
            return OctetsSerDe()
        case Form.WHOLE:
            return NumberSerDe(int)
        case Form.REAL:
            return NumberSerDe(float)
    return _of_both(taken)


def _of_output(returned: Wanted) -> SerDe:
    """Return the SerDe for outputs with this annotation."""
    return IdentitySerDe() if returned.form in PLAIN_FORMS else _of_both(returned)


def _of_both(side: Wanted) -> SerDe:
    try:
        match side.form:
            case Form.TRUTH:
                return TruthSerDe()
            case Form.OBJECT | Form.ARRAY:
                return CheckedJsonSerDe(side)
            case Form.JSON:
                return JsonSerDe()
            case Form.DATACLASS:
                from ...client.schemas.json_schema import JsonSchema

                return SchemaSerDe(JsonSchema(side.kind), side)
            case Form.MODEL:
                return ModelSerDe(side)
            case Form.STRUCT:
                return StructSerDe(side)
            case Form.RECORD:
                from .topic_schemas import record_json_schema

                return SchemaSerDe(record_json_schema(side), side)
            case Form.MESSAGE:
                from ...client.schemas.protobuf_native import ProtobufNativeSchema

                return SchemaSerDe(ProtobufNativeSchema(side.kind), side)
    except InvalidConfig as error:
        raise FunctionLoadError(f"{side}: {error}") from error
    raise FunctionLoadError(f"{side}, which is not a message type: {_REMEDY}")
