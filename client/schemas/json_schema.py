"""Dataclasses as JSON objects, defined by an Avro schema, as in all Pulsar clients."""

from __future__ import annotations

import json
from typing import Any, Generic, NoReturn, TypeVar

from ...errors import SchemaSerializationError
from ...wire import pulsar_api_pb2 as pb
from .field_types import MISSING, Misfit, Record
from .records import definition_of, record_of
from .schema import Schema, SchemaInfo, refusal

T = TypeVar("T")


class JsonSchema(Schema[T], Generic[T]):
    """Instances of a dataclass, encoded as JSON."""

    def __init__(self, kind: type[T]):
        """Create a schema from a dataclass.

        Args:
            kind: a dataclass. Field types may be str, bytes, `Base64Bytes`, bool, int, `Int32`, float, `Float32`,
                datetime, date, time, Enum, other dataclasses, and lists and dicts (with str keys) of these; each may be
                combined with ``| None``.

        Raises:
            InvalidConfig: ``kind`` is not a dataclass, or a field has an unsupported type.
        """
        self._record = record_of(kind)
        self.info = SchemaInfo(pb.Schema.Json, definition_text(definition_of(self._record)), "JSON")

    def __str__(self) -> str:
        return f"schema JSON of {self._record.name}"

    def encode(self, value: T) -> bytes:
        """Encode an object; see `Schema.encode`."""
        plain = plain_of(self, self._record, value, is_json=True)
        return json.dumps(plain, separators=(",", ":")).encode()

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> T:
        """Decode an object, ignoring fields that the dataclass lacks; see `Schema.decode`."""
        value: T = value_of(self, self._record, load_json(str(self), data), is_json=True)
        return value


def definition_text(definition: object) -> bytes:
    """Return a definition in the official Python client's formatting."""
    return json.dumps(definition, indent=True).encode()


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not valid JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def load_json(schema: str, data: bytes) -> Any:
    """Decode JSON; NaN and Infinity are rejected. Errors name ``schema``.

    Raises:
        SchemaSerializationError: the data is not valid JSON.
    """
    try:
        return _DECODER.decode(data.decode(json.detect_encoding(data), "surrogatepass"))
    except (ValueError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise SchemaSerializationError(f"{schema}: {len(data)} bytes are not valid JSON: {why}") from error


def plain_of(schema: Schema[Any], record: Record, value: object, *, is_json: bool) -> Any:
    """Return the encodable form of an object; raises the same errors as `Schema.encode`."""
    try:
        return record.plain(value, "", is_json=is_json)
    except Misfit as misfit:
        schema.refuse(misfit.value, misfit.wanted, misfit.path)
    except RecursionError as error:
        raise SchemaSerializationError(f"{schema}: the value is nested too deeply, or refers to itself") from error


def value_of(schema: Schema[Any], record: Record, plain: object, *, is_json: bool) -> Any:
    """Return the object for a decoded form; raises the same errors as `Schema.decode`."""
    try:
        return record.value(plain, "", is_json=is_json)
    except Misfit as misfit:
        if misfit.value is MISSING:
            raise SchemaSerializationError(
                f"{schema}: missing field {misfit.path}: expected {misfit.wanted}"
            ) from misfit
        raise SchemaSerializationError(refusal(str(schema), misfit.value, misfit.wanted, misfit.path)) from misfit
    except RecursionError as error:
        raise SchemaSerializationError(f"{schema}: the message is nested too deeply") from error
    except Exception as error:
        why = " ".join(str(error).split())
        raise SchemaSerializationError(f"{schema}: {record.name}(...) raised {type(error).__name__}: {why}") from error
