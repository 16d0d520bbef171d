"""Detection of invalid UTF-8 in strings before they are used.

The protocol's schema is proto2, whose parser accepts any bytes for a string. Reading such a field then returns `bytes`
instead of `str`, and later operations (JSON, comparisons, names) fail elsewhere.

`bad_string` checks a parsed message by a plan that is created once per message type. Entry metadata is too frequent for
that: `parse_metadata` parses it with a copy of its schema whose native parser checks strings itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from . import pulsar_api_pb2
from .pulsar_api_pb2 import MessageMetadata


class _Step(NamedTuple):
    """A string field, or a message field that contains strings (``below``)."""

    name: str
    is_repeated: bool
    below: tuple[_Step, ...]


@cache
def _plan(kind: Descriptor, above: tuple[Descriptor, ...] = ()) -> tuple[_Step, ...]:
    """Return the fields to check. Recursive types (MessageIdData) have no strings, as a test verifies."""
    steps = []
    for field in kind.fields:
        inner = field.message_type
        below = () if inner is None or inner in above or inner is kind else _plan(inner, (*above, kind))
        if below or field.type == FieldDescriptor.TYPE_STRING:
            steps.append(_Step(field.name, field.is_repeated, below))
    return tuple(steps)


def has_strings(kind: Descriptor) -> bool:
    """Return whether messages of a type may contain strings."""
    return bool(_plan(kind))


def bad_string(message: Message) -> str | None:
    """Return the path of the first string with invalid UTF-8, such as ``metadata[2].value``, or None."""
    return _find(message, _plan(message.DESCRIPTOR))


def _find(message: Message, plan: tuple[_Step, ...]) -> str | None:
    for name, is_repeated, below in plan:
        if not is_repeated:
            if below:
                if message.HasField(name) and (path := _find(getattr(message, name), below)) is not None:
                    return f"{name}.{path}"
            elif type(getattr(message, name)) is bytes:
                return name
            continue
        for index, value in enumerate(getattr(message, name)):
            if below:
                if (path := _find(value, below)) is not None:
                    return f"{name}[{index}].{path}"
            elif type(value) is bytes:
                return f"{name}[{index}]"
    return None


def _checked(name: str) -> type[Message]:
    """Return a message class whose parser rejects strings with invalid UTF-8.

    Its schema is a copy of the message and all types in it, in a protobuf edition that has this rule.
    """
    source, package = descriptor_pb2.FileDescriptorProto(), "magnetar.checked"
    pulsar_api_pb2.DESCRIPTOR.CopyToProto(source)
    features = descriptor_pb2.FeatureSet
    copy = descriptor_pb2.FileDescriptorProto(
        name=f"{package}/{name}", package=package, syntax="editions", edition=descriptor_pb2.EDITION_2023
    )
    copy.options.features.enum_type = features.CLOSED
    copy.options.features.repeated_field_encoding = features.EXPANDED
    copy.options.features.utf8_validation = features.VERIFY
    wanted, taken = [name], set()
    messages = {message.name: message for message in source.message_type}
    enums = {enum.name: enum for enum in source.enum_type}
    while wanted:
        one = wanted.pop()
        if one in taken:
            continue
        taken.add(one)
        if one in enums:
            copy.enum_type.add().CopyFrom(enums[one])
            continue
        message = copy.message_type.add()
        message.CopyFrom(messages[one])
        for field in message.field:
            if field.type_name:
                wanted.append(field.type_name.rsplit(".", 1)[1])
                field.type_name = f".{package}.{wanted[-1]}"
            if field.label == FieldDescriptor.LABEL_REQUIRED:
                field.label = FieldDescriptor.LABEL_OPTIONAL  # type: ignore[assignment]
                field.options.features.field_presence = features.LEGACY_REQUIRED
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(copy.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))


parse_metadata: Callable[[bytes], MessageMetadata] = _checked("MessageMetadata").FromString  # type: ignore[assignment]
"""Parses entry metadata like `MessageMetadata.FromString`, but raises `DecodeError` for a string with invalid UTF-8."""
