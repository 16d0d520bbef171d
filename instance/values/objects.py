"""SerDes of objects: what a schema of the client encodes, and models of pydantic and msgspec as JSON."""

from __future__ import annotations

import importlib
from typing import Any

from ...api.serde import SerDe
from ...client.schemas.schema import Schema
from ...errors import FunctionLoadError
from .wanted import Form, Wanted

ERROR_CHARACTERS_MAX = 300


class SchemaSerDe(SerDe):
    """Values as a schema has them."""

    def __init__(self, schema: Schema[Any], wanted: Wanted) -> None:
        """Convert by a schema; ``wanted`` says what the function returns."""
        self.schema = schema
        self._encode = schema.encode
        self._wanted = wanted
        self.deserialize = schema.decode  # type: ignore[method-assign, assignment]  # a call less for each message

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Return the bytes of a value.

        Raises:
            TypeError: it is of another class than is wanted; names both.
            SchemaSerializationError: the schema refuses it; names the field.
        """
        check_returned(input, self._wanted)
        return self._encode(input)

    def deserialize(self, input_bytes: bytes) -> Any:
        """Return the value of bytes; raises as `Schema.decode`."""
        return self.schema.decode(input_bytes)


class ModelSerDe(SerDe):
    """Models of pydantic as JSON."""

    def __init__(self, wanted: Wanted) -> None:
        """Give and take objects of the model that is wanted."""
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
        """Return the model of JSON; ValueError if it does not fit."""
        try:
            return self._read(input_bytes)
        except Exception as error:  # noqa: BLE001  whatever the model's own validators raise
            why = one_line(error)
        raise ValueError(f"message of {len(input_bytes)} bytes is not a valid {self._wanted.shown}: {why}")


class StructSerDe(SerDe):
    """Structs of msgspec as JSON."""

    def __init__(self, wanted: Wanted) -> None:
        """Give and take objects of the Struct that is wanted.

        Raises:
            FunctionLoadError: msgspec has no JSON form of it.
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
        """Return the Struct of JSON; ValueError if it does not fit."""
        try:
            return self._read(input_bytes)
        except Exception as error:  # noqa: BLE001  whatever the Struct's own code raises
            why = one_line(error)
        raise ValueError(f"message of {len(input_bytes)} bytes is not a valid {self._wanted.shown}: {why}")


def check_returned(value: object, wanted: Wanted) -> None:
    """Refuse what a function returned and that is not of the class that is wanted.

    Raises:
        TypeError: it is not; names both.
    """
    if wanted.kind is not None and wanted.form is not Form.ANY and not isinstance(value, wanted.kind):
        raise TypeError(f"{wanted}, and the function returned {type(value).__name__}; change one of the two")


def one_line(error: BaseException) -> str:
    """Return what an error says, on one line."""
    try:
        text = " ".join(str(error).split()) or type(error).__name__
    except Exception:  # noqa: BLE001  an error of user code
        text = type(error).__name__
    return text if len(text) <= ERROR_CHARACTERS_MAX else f"{text[: ERROR_CHARACTERS_MAX - 4]} ..."
