"""SerDes of objects: values of a client schema, and models of pydantic and msgspec as JSON."""

from __future__ import annotations

import importlib
from typing import Any

from ...api.serde import SerDe
from ...client.schemas.schema import Schema
from ...errors import FunctionLoadError
from .wanted import Form, Wanted

ERROR_CHARACTERS_MAX = 300


class SchemaSerDe(SerDe):
    """Values of a schema."""

    def __init__(self, schema: Schema[Any], wanted: Wanted) -> None:
        """Convert by a schema; ``wanted`` is the function's return type."""
        self.schema = schema
        self._encode = schema.encode
        self._wanted = wanted
        self.deserialize = schema.decode  # type: ignore[method-assign, assignment]  # saves a call per message

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Encode a value.

        Raises:
            TypeError: the value has another class than expected; names both.
            SchemaSerializationError: the schema rejects it; names the field.
        """
        check_returned(input, self._wanted)
        return self._encode(input)

    def deserialize(self, input_bytes: bytes) -> Any:
        """Decode a value; raises as `Schema.decode`."""
        return self.schema.decode(input_bytes)


class ModelSerDe(SerDe):
    """Models of pydantic as JSON."""

    def __init__(self, wanted: Wanted) -> None:
        """Convert objects of the expected model."""
        self._wanted = wanted
        self._read = getattr(wanted.kind, "model_validate_json", None) or wanted.kind.parse_raw

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Return a model as JSON; TypeError for other types, ValueError if it cannot be written."""
        check_returned(input, self._wanted)
        write = getattr(input, "model_dump_json", None) or input.json
        try:
            text: str = write()
        except Exception as error:  # whatever the model's own code raises
            raise ValueError(f"{self._wanted.shown} cannot be written as JSON: {one_line(error)}") from error
        return text.encode()

    def deserialize(self, input_bytes: bytes) -> Any:
        """Decode a model; ValueError if the JSON does not match."""
        try:
            return self._read(input_bytes)
        except Exception as error:  # noqa: BLE001  whatever the model's own validators raise
            why = one_line(error)
        raise ValueError(f"message of {len(input_bytes)} bytes is not a valid {self._wanted.shown}: {why}")


class StructSerDe(SerDe):
    """Structs of msgspec as JSON."""

    def __init__(self, wanted: Wanted) -> None:
        """Convert objects of the expected Struct.

        Raises:
            FunctionLoadError: msgspec has no JSON form for it.
        """
        self._wanted = wanted
        json: Any = importlib.import_module("msgspec.json")
        try:
            self._read = json.Decoder(wanted.kind).decode
        except TypeError as error:
            raise FunctionLoadError(f"{wanted}, which msgspec does not take: {one_line(error)}") from error
        self._write = json.Encoder().encode

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Return a Struct as JSON; TypeError for other types, ValueError if it cannot be written."""
        check_returned(input, self._wanted)
        try:
            data: bytes = self._write(input)
        except Exception as error:  # whatever the Struct holds
            raise ValueError(f"{self._wanted.shown} cannot be written as JSON: {one_line(error)}") from error
        return data

    def deserialize(self, input_bytes: bytes) -> Any:
        """Decode a Struct; ValueError if the JSON does not match."""
        try:
            return self._read(input_bytes)
        except Exception as error:  # noqa: BLE001  whatever the Struct's own code raises
            why = one_line(error)
        raise ValueError(f"message of {len(input_bytes)} bytes is not a valid {self._wanted.shown}: {why}")


def check_returned(value: object, wanted: Wanted) -> None:
    """Reject a return value that is not of the expected class.

    Raises:
        TypeError: with both classes.
    """
    if wanted.kind is not None and wanted.form is not Form.ANY and not isinstance(value, wanted.kind):
        raise TypeError(f"{wanted}, and the function returned {type(value).__name__}; change one of the two")


def one_line(error: BaseException) -> str:
    """Return an error's text on one line."""
    try:
        text = " ".join(str(error).split()) or type(error).__name__
    except Exception:  # noqa: BLE001  an error of user code
        text = type(error).__name__
    return text if len(text) <= ERROR_CHARACTERS_MAX else f"{text[: ERROR_CHARACTERS_MAX - 4]} ..."
