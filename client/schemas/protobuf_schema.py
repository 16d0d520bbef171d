"""Protocol Buffers messages as in Java's ``Schema.PROTOBUF``: an equivalent Avro schema is sent to the broker.

Source: org.apache.avro.protobuf.ProtobufData (Apache Avro 1.11), which Java's client (4.0) uses to derive the schema.
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from ...wire import pulsar_api_pb2 as pb
from .json_schema import definition_text
from .protobuf_native import ProtobufNativeSchema
from .schema import SchemaInfo

M = TypeVar("M", bound=Message)

_TEXT = {"type": "string", "avro.java.string": "String"}
_KINDS: dict[int, tuple[Any, Any]] = {
    FieldDescriptor.TYPE_BOOL: ("boolean", False),
    FieldDescriptor.TYPE_FLOAT: ("float", 0.0),
    FieldDescriptor.TYPE_DOUBLE: ("double", 0.0),
    FieldDescriptor.TYPE_STRING: (_TEXT, ""),
    FieldDescriptor.TYPE_BYTES: ("bytes", ""),
    **dict.fromkeys(
        (
            FieldDescriptor.TYPE_INT32,
            FieldDescriptor.TYPE_UINT32,
            FieldDescriptor.TYPE_SINT32,
            FieldDescriptor.TYPE_FIXED32,
            FieldDescriptor.TYPE_SFIXED32,
        ),
        ("int", 0),
    ),
    **dict.fromkeys(
        (
            FieldDescriptor.TYPE_INT64,
            FieldDescriptor.TYPE_UINT64,
            FieldDescriptor.TYPE_SINT64,
            FieldDescriptor.TYPE_FIXED64,
            FieldDescriptor.TYPE_SFIXED64,
        ),
        ("long", 0),
    ),
}
"""Avro type and implicit default, by protobuf field type."""


class ProtobufSchema(ProtobufNativeSchema[M]):
    """A Protocol Buffers message in its native encoding, for topics of Java's ``Schema.PROTOBUF``.

    For other topics use `ProtobufNativeSchema`, whose definition is complete.
    """

    def __init__(self, kind: type[M]):
        """Create a schema from a message class; see `ProtobufNativeSchema`."""
        super().__init__(kind)
        self.info = SchemaInfo(pb.Schema.Protobuf, definition_text(avro_of(kind.DESCRIPTOR)), "PROTOBUF")


def avro_of(descriptor: Any) -> Any:
    """Return the Avro schema of a message."""
    return _record(descriptor, "", set())


def _space(descriptor: Any) -> str:
    """Return the Java class that encloses a message or enum class, which is used as the namespace."""
    options = descriptor.file.GetOptions()
    package = options.java_package if options.HasField("java_package") else descriptor.file.package
    outer = ""
    if not options.java_multiple_files:
        stem = descriptor.file.name.rpartition("/")[2].rpartition(".")[0]
        outer = options.java_outer_classname or "".join(word[:1].upper() + word[1:] for word in stem.split("_"))
    inner: list[str] = []
    around = descriptor.containing_type
    while around is not None:
        inner.insert(0, around.name)
        around = around.containing_type
    classes = "$".join([*([outer] if outer else []), *inner])
    return ".".join(part for part in (package, classes) if part)


def _named(descriptor: Any, kind: str, around: str, known: set[str]) -> tuple[str, dict[str, Any] | str]:
    """Return a type's namespace and the start of its definition, or only its name if already defined."""
    space = _space(descriptor)
    whole = f"{space}.{descriptor.name}" if space else descriptor.name
    if whole in known:
        return space, descriptor.name if space == around else whole
    known.add(whole)
    begun = {"type": kind, "name": descriptor.name}
    if space != around:
        begun["namespace"] = space
    return space, begun


def _record(descriptor: Any, around: str, known: set[str]) -> Any:
    space, begun = _named(descriptor, "record", around, known)
    if isinstance(begun, dict):
        begun["fields"] = [_field(field, space, known) for field in descriptor.fields]
    return begun


def _enum(descriptor: Any, around: str, known: set[str]) -> Any:
    _, begun = _named(descriptor, "enum", around, known)
    if isinstance(begun, dict):
        begun["symbols"] = [value.name for value in descriptor.values]
    return begun


def _field(field: Any, space: str, known: set[str]) -> dict[str, Any]:
    kind: Any
    default: Any
    if field.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP):
        kind, default = _record(field.message_type, space, known), None
        if not field.is_repeated and not field.is_required:
            kind = ["null", kind]
    elif field.type == FieldDescriptor.TYPE_ENUM:
        kind, default = _enum(field.enum_type, space, known), field.enum_type.values[0].name
        if field.has_default_value:
            default = field.enum_type.values_by_number[field.default_value].name
    else:
        kind, default = _KINDS[field.type]
        if field.has_default_value:
            default = field.default_value
            if isinstance(default, bytes):
                default = default.decode("latin-1")
    found = {"name": field.name, "type": kind}
    if field.is_repeated:
        return {**found, "type": {"type": "array", "items": kind}, "default": []}
    return found if field.is_required else {**found, "default": default}
