"""SerDes for annotations of str, bytes, int, float, bool, dict and list.

Unlike `IdentitySerDe`, which guesses, they pass a function the annotated type or raise an error. Return values are
encoded as by `IdentitySerDe`, so that annotations do not change the output of a function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...api.serde import BatchSerDe, IdentitySerDe, JsonSerDe
from ...client.schemas.schema import Schema
from .wanted import Form, Wanted

_IDENTITY = IdentitySerDe()


class _PlainSerDe(BatchSerDe):
    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Encode a value as `IdentitySerDe` does."""
        return _IDENTITY.serialize(input)

    def serialize_all(self, values: Sequence[Any]) -> list[bytes | None] | None:
        """Encode values as `IdentitySerDe` does."""
        return _IDENTITY.serialize_all(values)


class TextSerDe(_PlainSerDe):
    """Decodes messages as strings, even if they look like numbers."""

    def deserialize(self, input_bytes: bytes) -> str:
        """Decode a message as UTF-8.

        Raises:
            ValueError: the bytes are not valid UTF-8.
        """
        try:
            return input_bytes.decode()
        except UnicodeDecodeError as error:
            why = f"message of {len(input_bytes)} bytes is not text: invalid UTF-8 at byte {error.start}"
        raise ValueError(f"{why}: annotate the parameter as bytes to accept any message")

    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any] | None:
        """Decode messages as UTF-8, or return None if one is invalid."""
        return _all_or_none(bytes.decode, messages)


class TextSchemaSerDe(TextSerDe):
    """Decodes messages as strings, and encodes strings only, by a schema."""

    def __init__(self, schema: Schema[Any]) -> None:
        """Create a SerDe that encodes values by a schema."""
        self._schema = schema

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Encode a string; raises the same errors as `Schema.encode`."""
        return self._schema.encode(input)

    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any] | None:
        """Decode messages as UTF-8, or return None if one is invalid."""
        return _all_or_none(bytes.decode, messages)


class OctetsSerDe(_PlainSerDe):
    """Passes bytes through unchanged."""

    def deserialize(self, input_bytes: bytes) -> bytes:
        """Return the bytes unchanged."""
        return input_bytes

    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any]:
        """Return the messages unchanged."""
        return list(messages)


class NumberSerDe(_PlainSerDe):
    """Decodes int or float from their decimal form."""

    def __init__(self, kind: type[int] | type[float]) -> None:
        """Create a SerDe for int or float."""
        self._kind = kind

    def deserialize(self, input_bytes: bytes) -> float:
        """Decode a number.

        Raises:
            ValueError: the message is not a number, or is a float where an int is expected.
        """
        try:
            return self._kind(input_bytes)
        except ValueError as error:
            text = repr(input_bytes[:40])[1:]
            why = str(error) if "limit" in str(error) else f"message {text} is not a valid {self._kind.__name__}"
        raise ValueError(f"{why}, as required by the parameter's annotation")

    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any] | None:
        """Decode numbers, or return None if one is invalid."""
        return _all_or_none(self._kind, messages)


_TRUTHS = {b"true": True, b"false": False}


class TruthSerDe(BatchSerDe):
    """Converts booleans to and from JSON."""

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Encode a boolean as ``true`` or ``false``."""
        if isinstance(input, bool):
            return b"true" if input else b"false"
        raise TypeError(
            f"the function returned {type(input).__name__}, but its return annotation is bool: change one of them"
        )

    def deserialize(self, input_bytes: bytes) -> bool:
        """Decode a boolean.

        Raises:
            ValueError: the message is neither ``true`` nor ``false``.
        """
        found = _TRUTHS.get(input_bytes)
        if found is None:
            raise ValueError(
                f"message {repr(input_bytes[:40])[1:]} is neither true nor false, but the parameter is bool"
            )
        return found

    def serialize_all(self, values: Sequence[Any]) -> list[bytes | None] | None:
        """Return None, which leaves encoding to `serialize`."""
        return None

    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any] | None:
        """Decode booleans, or return None if one is invalid."""
        return _all_or_none(_TRUTHS.__getitem__, messages)


class CheckedJsonSerDe(BatchSerDe):
    """Converts JSON whose outermost value must be a dict or a list."""

    def __init__(self, wanted: Wanted) -> None:
        """Create a SerDe for the expected type, dict or list."""
        self._wanted = wanted
        self._json = JsonSerDe()
        self._given: frozenset[type] = frozenset({dict if wanted.form is Form.OBJECT else list})
        self._taken = dict if wanted.form is Form.OBJECT else (list, tuple)
        if wanted.takes_none:
            self._given |= {type(None)}

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Encode a value as JSON; raises the errors of `JsonSerDe.serialize`, and TypeError for another type."""
        if not isinstance(input, self._taken):
            raise TypeError(f"{self._wanted}, but the function returned {type(input).__name__}: change one of them")
        return self._json.serialize(input)

    def deserialize(self, input_bytes: bytes) -> Any:
        """Decode JSON; raises the errors of `JsonSerDe.deserialize`, and ValueError for another type."""
        value = self._json.deserialize(input_bytes)
        if type(value) not in self._given:
            raise ValueError(f"{self._wanted}, but the message is a JSON {type(value).__name__}")
        return value

    def serialize_all(self, values: Sequence[Any]) -> list[bytes | None] | None:
        """Encode values as JSON, with None for None, or return None if one is invalid."""
        kinds = set(map(type, values)) - {type(None)}
        return self._json.serialize_all(values) if all(issubclass(kind, self._taken) for kind in kinds) else None

    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any] | None:
        """Decode messages, or return None if one is invalid."""
        values = self._json.deserialize_all(messages)
        return None if values is None or not self._given.issuperset(map(type, values)) else values


def _all_or_none(convert: Any, messages: Sequence[bytes]) -> list[Any] | None:
    """Convert messages, or return None if one cannot be converted."""
    try:
        return list(map(convert, messages))
    except (ValueError, KeyError):
        return None
