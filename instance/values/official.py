"""Wraps schemas of the official client, and others with its interface, as our schemas."""

from __future__ import annotations

from typing import Any

from ...client.schemas.avro_schema import AvroSchema
from ...client.schemas.schema import BYTES, Schema, SchemaInfo
from ...errors import FunctionLoadError, SchemaSerializationError
from .objects import one_line

_METHODS = ("encode", "decode", "schema_info")


class OfficialSchema(Schema[Any]):
    """A schema of ``pulsar.schema``, or of a user class derived from it."""

    def __init__(self, theirs: Any) -> None:
        """Take over the schema information that it sends to brokers.

        Raises:
            FunctionLoadError: it has none.
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
        """Encode a value; as `Schema.encode`."""
        try:
            data = self._theirs.encode(value)
        except Exception as error:
            raise SchemaSerializationError(f"{self} refuses {type(value).__name__}: {one_line(error)}") from error
        if not isinstance(data, bytes):
            raise SchemaSerializationError(f"{self}: encode returned {type(data).__name__} instead of bytes")
        return data

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> Any:
        """Decode a value; as `Schema.decode`."""
        try:
            return self._theirs.decode(data)
        except Exception as error:
            raise SchemaSerializationError(f"{self}: {len(data)} bytes cannot be read: {one_line(error)}") from error


class RecordAvroSchema(OfficialSchema):
    """A Record of ``pulsar.schema`` in Avro's binary form, read by the schema that it was written with."""

    needs_writer = True

    def __init__(self, theirs: Any, kind: Any) -> None:
        """Write by the official client's ``AvroSchema``, and read values of class ``kind`` by its definition."""
        super().__init__(theirs)
        self._kind = kind
        self._reader: AvroSchema[Any] = AvroSchema(self.info.definition.decode())

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> Any:
        """Decode a record; as `Schema.decode`."""
        plain = self._reader.decode(data, writer)
        try:
            return self._kind(**plain)
        except Exception as error:
            raise SchemaSerializationError(f"{self}: {self._kind.__name__}(...) refuses: {one_line(error)}") from error


def is_official(schema: object) -> bool:
    """Return whether an object has the interface of the official client's schemas."""
    return all(callable(getattr(schema, name, None)) for name in _METHODS)
