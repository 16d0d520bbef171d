"""SerDes of objects: values of a client schema, and pydantic and msgspec models as JSON."""

from __future__ import annotations

import importlib
from typing import Any

from ...api.serde import SerDe
from ...client.schemas.schema import Schema
from ...errors import FunctionLoadError
from .wanted import Form, Wanted

ERROR_CHARACTERS_MAX = 300


class SchemaSerDe(SerDe):
    """SerDe for values of a schema."""

    def __init__(self, schema: Schema[Any], wanted: Wanted) -> None:
        """Create a SerDe for a schema; ``wanted`` is the function's return type."""
        self.schema = schema
        self._encode = schema.encode
        self._wanted = wanted
        self.deserialize = schema.decode  # type: ignore[method-assign, assignment]  # saves a call per message

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Encode a value of the schema.

        Raises:
            TypeError: the value is not of the expected class.
            SchemaSerializationError: the schema rejects the value; the error names the field.
        """
        check_returned(input, self._wanted)
        return self._encode(input)

    def deserialize(self, input_bytes: bytes) -> Any:
        """Decode a value; raises the same errors as `Schema.decode`."""
        return self.schema.decode(input_bytes)


class ModelSerDe(SerDe):
    """SerDe for pydantic models as JSON."""

    def __init__(self, wanted: Wanted) -> None:
        """Create a SerDe for the expected model."""
        self._wanted = wanted
        self._read = getattr(wanted.kind, "model_validate_json", None) or wanted.kind.parse_raw

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Encode a model as JSON; raises TypeError for other types, ValueError if encoding fails."""
        check_returned(input, self._wanted)
        write = getattr(input, "model_dump_json", None) or input.json
        try:
            text: str = write()
        except Exception as error:  # the model's own code may raise anything
            raise ValueError(f"cannot encode {self._wanted.shown} as JSON: {one_line(error)}") from error
        return text.encode()

    def deserialize(self, input_bytes: bytes) -> Any:
        """Decode a model; raises ValueError if the JSON does not match."""
        try:
            return self._read(input_bytes)
        except Exception as error:  # noqa: BLE001  the model's own validators may raise anything
            why = one_line(error)
        raise ValueError(f"message of {len(input_bytes)} bytes is not a valid {self._wanted.shown}: {why}")


class StructSerDe(SerDe):
    """SerDe for msgspec Structs as JSON."""

    def __init__(self, wanted: Wanted) -> None:
        """Create a SerDe for the expected Struct.

        Raises:
            FunctionLoadError: msgspec does not support the Struct.
        """
        self._wanted = wanted
        json: Any = importlib.import_module("msgspec.json")
        try:
            self._read = json.Decoder(wanted.kind).decode
        except TypeError as error:
            raise FunctionLoadError(f"{wanted}, which msgspec does not support: {one_line(error)}") from error
        self._write = json.Encoder().encode

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Encode a Struct as JSON; raises TypeError for other types, ValueError if encoding fails."""
        check_returned(input, self._wanted)
        try:
            data: bytes = self._write(input)
        except Exception as error:  # field values may raise anything
            raise ValueError(f"cannot encode {self._wanted.shown} as JSON: {one_line(error)}") from error
        return data

    def deserialize(self, input_bytes: bytes) -> Any:
        """Decode a Struct; raises ValueError if the JSON does not match."""
        try:
            return self._read(input_bytes)
        except Exception as error:  # noqa: BLE001  the Struct's own code may raise anything
            why = one_line(error)
        raise ValueError(f"message of {len(input_bytes)} bytes is not a valid {self._wanted.shown}: {why}")


def check_returned(value: object, wanted: Wanted) -> None:
    """Reject a return value that is not of the expected class.

    Raises:
        TypeError: the value has another class; the error names both.
    """
    if wanted.kind is not None and wanted.form is not Form.ANY and not isinstance(value, wanted.kind):
        raise TypeError(f"{wanted}, but the function returned {type(value).__name__}: change one of them")


def one_line(error: BaseException) -> str:
    """Format an error on one line."""
    try:
        text = " ".join(str(error).split()) or type(error).__name__
    except Exception:  # noqa: BLE001  an error of user code
        text = type(error).__name__
    return text if len(text) <= ERROR_CHARACTERS_MAX else f"{text[: ERROR_CHARACTERS_MAX - 4]} ..."
