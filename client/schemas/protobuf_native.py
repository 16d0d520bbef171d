"""Protocol Buffers messages; their descriptor is sent to the broker.

Source: ProtobufNativeSchemaData of Java's client (4.0); definitions as the official Python client derives them.
"""

from __future__ import annotations

import base64
from typing import Any, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, EncodeError, Message

from ...errors import InvalidConfig, SchemaSerializationError
from ...wire import pulsar_api_pb2 as pb
from .json_schema import definition_text, load_json
from .schema import Schema, SchemaInfo, shown

M = TypeVar("M", bound=Message)


class ProtobufNativeSchema(Schema[M]):
    """A message of Protocol Buffers in its own encoding."""

    def __init__(self, kind: type[M]):
        """Derive the definition.

        Args:
            kind: a class that protoc generated.

        Raises:
            InvalidConfig: ``kind`` is not a message class.
        """
        check_message_class(kind)
        self._kind = kind
        self.info = SchemaInfo(pb.Schema.ProtobufNative, definition_of(kind.DESCRIPTOR), "PROTOBUF_NATIVE")

    def __str__(self) -> str:
        return f"schema {self.info.type_name} of {self._kind.DESCRIPTOR.full_name}"

    def encode(self, value: M) -> bytes:
        """Return a message as bytes; as `Schema.encode`."""
        if not isinstance(value, self._kind):
            self.refuse(value, f"a {self._kind.DESCRIPTOR.full_name}")
        try:
            return value.SerializeToString()
        except (EncodeError, ValueError, RecursionError) as error:
            raise SchemaSerializationError(f"{self}: {' '.join(str(error).split())}") from error

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> M:
        """Return the message of bytes; as `Schema.decode`."""
        try:
            return self._kind.FromString(data)
        except (DecodeError, ValueError, RecursionError) as error:
            raise SchemaSerializationError(f"{self}: {len(data)} bytes are no message: {error}") from error


def check_message_class(kind: object) -> None:
    """Reject anything but a protobuf message class.

    Raises:
        InvalidConfig: ``kind`` is not a message class.
    """
    if not isinstance(kind, type) or not issubclass(kind, Message) or kind is Message:
        raise InvalidConfig(f"{shown(kind)} is no class of a protobuf message; give one that protoc generated")


def definition_of(descriptor: Any) -> bytes:
    """Return the definition of a message: its file and those that it imports, each after its own imports."""
    files = descriptor_pb2.FileDescriptorSet()
    _add(descriptor.file, set(), files)
    return definition_text(
        {
            "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
            "rootMessageTypeName": descriptor.full_name,
            "rootFileDescriptorName": descriptor.file.name,
        }
    )


def _add(file: Any, added: set[str], files: descriptor_pb2.FileDescriptorSet) -> None:
    if file.name in added:
        return
    for imported in file.dependencies:
        _add(imported, added, files)
    added.add(file.name)
    file.CopyToProto(files.file.add())


def message_class(info: SchemaInfo) -> type[Message]:
    """Return a class of the messages that a broker's schema describes.

    Raises:
        SchemaSerializationError: it describes none.
    """
    what = "the definition of schema PROTOBUF_NATIVE"
    said = load_json(what, info.definition)
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(said["fileDescriptorSet"]))
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(said["rootMessageTypeName"]))
    except (KeyError, TypeError, ValueError, DecodeError) as error:
        why = " ".join(str(error).split())
        raise SchemaSerializationError(f"{what} describes no message: {type(error).__name__}: {why}") from error
