"""Wrap schemas of the official client, and others with the same interface, as client schemas."""

from __future__ import annotations

from typing import Any

from ...client.schemas.avro_schema import AvroSchema
from ...client.schemas.schema import BYTES, Schema, SchemaInfo
from ...errors import FunctionLoadError, SchemaSerializationError
from .objects import one_line

_METHODS = ("encode", "decode", "schema_info")


class OfficialSchema(Schema[Any]):
    """Wrapper of a schema from ``pulsar.schema``, or of a user class derived from one."""

    def __init__(self, theirs: Any) -> None:
        """Wrap a schema, with the schema information that it sends to brokers.

        Raises:
            FunctionLoadError: the schema has no valid schema information.
        """
        try:
            said = theirs.schema_info()
            kind, definition, name = int(said.schema_type()), said.schema(), said.name()
        except Exception as error:
            raise FunctionLoadError(f"{type(theirs).__name__}.schema_info() failed: {one_line(error)}") from error
        has_definition = definition not in ("", "null")
        self.info = SchemaInfo(kind if kind > 0 else BYTES, definition.encode() if has_definition else b"", name)
        self._theirs = theirs

    def __str__(self) -> str:
        return f"schema {type(self._theirs).__name__}"

    def encode(self, value: Any) -> bytes:
        """Encode a value; raises SchemaSerializationError if the schema rejects it."""
        try:
            data = self._theirs.encode(value)
        except Exception as error:
            raise SchemaSerializationError(f"{self} cannot encode {type(value).__name__}: {one_line(error)}") from error
        if not isinstance(data, bytes):
            raise SchemaSerializationError(f"{self}: encode returned {type(data).__name__} instead of bytes")
        return data

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> Any:
        """Decode a value; raises SchemaSerializationError if the schema rejects it."""
        try:
            return self._theirs.decode(data)
        except Exception as error:
            raise SchemaSerializationError(f"{self} cannot decode {len(data)} bytes: {one_line(error)}") from error


class RecordAvroSchema(OfficialSchema):
    """Avro schema of a ``pulsar.schema`` Record that decodes values with the writer's schema."""

    needs_writer = True

    def __init__(self, theirs: Any, kind: Any) -> None:
        """Wrap the official client's ``AvroSchema``, and decode values of class ``kind`` by its definition."""
        super().__init__(theirs)
        self._kind = kind
        self._reader: AvroSchema[Any] = AvroSchema(self.info.definition.decode())

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> Any:
        """Decode a Record; raises SchemaSerializationError if the data is invalid."""
        plain = self._reader.decode(data, writer)
        try:
            return self._kind(**plain)
        except Exception as error:
            raise SchemaSerializationError(f"{self}: {self._kind.__name__}(...) failed: {one_line(error)}") from error


def is_official(schema: object) -> bool:
    """Return whether an object has the interface of the official client's schemas."""
    return all(callable(getattr(schema, name, None)) for name in _METHODS)
