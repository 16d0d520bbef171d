"""Records in Avro's binary encoding, with resolution of the writer's schema.

`fastavro` encodes, decodes, and resolves the writer's schema against the reader's; install it with ``magnetar[avro]``.

Source: Apache Avro 1.12, Schema Resolution; definitions as derived by the official Python client.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from ...errors import InvalidConfig, SchemaSerializationError
from ...wire import pulsar_api_pb2 as pb
from .avro_shape import DEPTH_MAX, has_arrays_of_nothing, is_deeper, is_recursive
from .field_types import Record
from .json_schema import definition_text, plain_of, value_of
from .records import definition_of, record_of
from .schema import Schema, SchemaInfo, refusal, shown

T = TypeVar("T")

WRITERS_MAX = 1000
"""Maximum number of cached writer schemas per schema."""

COMPILED_BYTES_MAX = 1000
"""Size limit for reading recursive schemas with the compiled reader, which lacks a depth limit."""


class _Reading(NamedTuple):
    """The writer's schema, the reader's schema under the writer's name, and whether the schema is recursive."""

    written: Any
    wanted: Any
    is_recursive: bool


class AvroSchema(Schema[T], Generic[T]):
    """An object of a dataclass, or a dict, in Avro's binary encoding."""

    needs_writer = True

    def __init__(self, kind: type[T] | Mapping[str, Any] | str):
        """Create a schema from a dataclass or a definition.

        Args:
            kind: a dataclass, as for `JsonSchema`; or a definition, as a JSON string (.avsc) or parsed. With a
                definition, values are dicts.

        Raises:
            InvalidConfig: the definition is invalid, or fastavro is not installed.
        """
        self._fastavro = _fastavro()
        self._record: Record | None = None
        definition: Any
        if isinstance(kind, type):
            self._record = record_of(kind)
            definition = definition_of(self._record)
        else:
            try:
                definition = json.loads(kind if isinstance(kind, str) else json.dumps(kind))
            except (TypeError, ValueError, RecursionError) as error:
                raise InvalidConfig(f"{shown(kind)} is not valid JSON: {_said(error)}") from error
        try:
            self._parsed = self._fastavro.parse_schema(definition)
        except Exception as error:
            raise InvalidConfig(f"{shown(definition)} is not a valid Avro schema: {_said(error)}") from error
        if has_arrays_of_nothing(definition):
            raise InvalidConfig(f"{shown(definition)} has an array of zero-byte items: add a field to the item type")
        self._definition = definition
        self._name = str(definition.get("name", "")) if isinstance(definition, Mapping) else ""
        self._own = _Reading(self._parsed, self._parsed, is_recursive(definition))
        self._readings: dict[bytes, _Reading] = {}
        self.info = SchemaInfo(pb.Schema.Avro, definition_text(definition), "AVRO")

    def __str__(self) -> str:
        return f"schema AVRO of {self._name}" if self._name else "schema AVRO"

    # -- writing --------------------------------------------------------------------------------------------------

    def encode(self, value: T) -> bytes:
        """Encode an object; see `Schema.encode`."""
        plain: Any = value
        if self._record is not None:
            plain = plain_of(self, self._record, value, is_json=False)
        if self._own.is_recursive and is_deeper(plain):
            raise SchemaSerializationError(f"{self}: a {type(value).__name__} is nested deeper than {DEPTH_MAX}")
        if self._record is None:
            self._check(plain)
        out = io.BytesIO()
        try:
            self._fastavro.schemaless_writer(out, self._parsed, plain, strict_allow_default=True)
        except Exception as error:
            raise SchemaSerializationError(f"{self}: cannot encode a {type(value).__name__}: {_said(error)}") from error
        return out.getvalue()

    def _check(self, plain: Any) -> None:
        """Reject values that the writer would reject without naming the field, or silently convert (1.5 to 1)."""
        try:
            self._fastavro.validation.validate(plain, self._parsed, raise_errors=True)
        except self._fastavro.validation.ValidationError as error:
            first = error.errors[0]
            if isinstance(first, str):
                raise SchemaSerializationError(f"{self}: {_said(error)}") from error
            wanted = f"Avro type {shown(first.schema).strip(chr(39))}"
            raise SchemaSerializationError(refusal(str(self), first.datum, wanted, first.field or "")) from error
        except Exception as error:
            raise SchemaSerializationError(f"{self}: invalid {type(plain).__name__}: {_said(error)}") from error

    # -- reading --------------------------------------------------------------------------------------------------

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> T:
        """Decode bytes to an object; see `Schema.decode`."""
        reading = self._own if writer is None else self._reading(writer)
        source = io.BytesIO(data)
        read = self._fastavro.schemaless_reader
        if reading.is_recursive and len(data) > COMPILED_BYTES_MAX:
            from fastavro import _read_py  # the pure Python reader

            read = _read_py.schemaless_reader
        try:
            plain = read(source, reading.written, reading.wanted)
        except RecursionError as error:
            raise SchemaSerializationError(f"{self}: the message is nested too deeply") from error
        except Exception as error:
            raise SchemaSerializationError(f"{self}: cannot decode {len(data)} bytes: {_said(error)}") from error
        if source.tell() != len(data):
            raise SchemaSerializationError(f"{self}: the value ends after {source.tell()} of {len(data)} bytes")
        if self._record is not None:
            plain = value_of(self, self._record, plain, is_json=False)
        value: T = plain
        return value

    def _reading(self, writer: SchemaInfo) -> _Reading:
        if writer.kind != pb.Schema.Avro:
            raise SchemaSerializationError(f"{self}: the message was written with schema {writer.type_name}")
        found = self._readings.get(writer.definition)
        if found is not None:
            return found
        try:
            definition = json.loads(writer.definition)
            written = self._fastavro.parse_schema(definition)
            if has_arrays_of_nothing(definition):
                raise ValueError("it has an array of zero-byte items")
            wanted = self._parsed
            if isinstance(written, dict) and written.get("type") == "record" and isinstance(self._definition, Mapping):
                # The record's name is ignored, as in the official clients.
                aliases = [*self._definition.get("aliases", ()), written["name"]]
                wanted = self._fastavro.parse_schema({**self._definition, "aliases": aliases})
            reading = _Reading(written, wanted, is_recursive(definition))
        except Exception as error:
            raise SchemaSerializationError(f"{self}: cannot read the writer's schema: {_said(error)}") from error
        if len(self._readings) >= WRITERS_MAX:
            self._readings.clear()
        self._readings[writer.definition] = reading
        return reading


def _fastavro() -> Any:
    try:
        import fastavro
        import fastavro.validation
    except ImportError as error:
        raise InvalidConfig("Avro schemas require fastavro: install magnetar[avro]") from error
    return fastavro


def _said(error: BaseException) -> str:
    """Return an error message on one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:196]} ..."
