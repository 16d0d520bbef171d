"""SerDes for annotations of str, bytes, int, float, bool, dict and list.

Unlike `IdentitySerDe`, which guesses, they pass a function the annotated type, or raise an error. Return values are
encoded as by `IdentitySerDe`, so that annotations do not change what a function writes.
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
        """Encode a value like `IdentitySerDe`."""
        return _IDENTITY.serialize(input)

    def serialize_all(self, values: Sequence[Any]) -> list[bytes | None] | None:
        """Encode values like `IdentitySerDe`."""
        return _IDENTITY.serialize_all(values)


class TextSerDe(_PlainSerDe):
    """Decodes text, even if it looks like a number."""

    def deserialize(self, input_bytes: bytes) -> str:
        """Return the text.

        Raises:
            ValueError: the bytes are not valid UTF-8.
        """
        try:
            return input_bytes.decode()
        except UnicodeDecodeError as error:
            why = f"message of {len(input_bytes)} bytes is not text: invalid UTF-8 at byte {error.start}"
        raise ValueError(f"{why}: annotate the parameter as bytes to accept any message")

    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any] | None:
        """Return the texts."""
        return _all_or_none(bytes.decode, messages)


class TextSchemaSerDe(TextSerDe):
    """Text with a schema: only text can be sent, too."""

    def __init__(self, schema: Schema[Any]) -> None:
        """Reject values that the schema rejects."""
        self._schema = schema

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Encode text; as `Schema.encode`."""
        return self._schema.encode(input)

    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any] | None:
        """Return the texts."""
        return _all_or_none(bytes.decode, messages)


class OctetsSerDe(_PlainSerDe):
    """Passes bytes through."""

    def deserialize(self, input_bytes: bytes) -> bytes:
        """Return the bytes."""
        return input_bytes

    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any]:
        """Return the bytes."""
        return list(messages)


class NumberSerDe(_PlainSerDe):
    """Decodes int or float from text."""

    def __init__(self, kind: type[int] | type[float]) -> None:
        """Decode numbers of a kind."""
        self._kind = kind

    def deserialize(self, input_bytes: bytes) -> float:
        """Return the number.

        Raises:
            ValueError: the message is not a number, or is a float where an int is expected.
        """
        try:
            return self._kind(input_bytes)
        except ValueError as error:
            text = repr(input_bytes[:40])[1:]
            why = str(error) if "limit" in str(error) else f"message {text} is not a valid {self._kind.__name__}"
        raise ValueError(f"{why}, which the parameter's annotation asks for")

    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any] | None:
        """Return the numbers."""
        return _all_or_none(self._kind, messages)


_TRUTHS = {b"true": True, b"false": False}


class TruthSerDe(BatchSerDe):
    """True and False in JSON form."""

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Return ``true`` or ``false``."""
        if isinstance(input, bool):
            return b"true" if input else b"false"
        raise TypeError(
            f"the function returned {type(input).__name__}, and its return annotation is bool; change one of the two"
        )

    def deserialize(self, input_bytes: bytes) -> bool:
        """Return the boolean.

        Raises:
            ValueError: the message is neither ``true`` nor ``false``.
        """
        found = _TRUTHS.get(input_bytes)
        if found is None:
            raise ValueError(
                f"message {repr(input_bytes[:40])[1:]} is neither true nor false, and the parameter is bool"
            )
        return found

    def serialize_all(self, values: Sequence[Any]) -> list[bytes | None] | None:
        """Leave encoding to `serialize`."""
        return None

    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any] | None:
        """Return the booleans."""
        return _all_or_none(_TRUTHS.__getitem__, messages)


class CheckedJsonSerDe(BatchSerDe):
    """JSON whose outermost value has a fixed type."""

    def __init__(self, wanted: Wanted) -> None:
        """Convert values of the expected type: dict or list."""
        self._wanted = wanted
        self._json = JsonSerDe()
        self._given: frozenset[type] = frozenset({dict if wanted.form is Form.OBJECT else list})
        self._taken = dict if wanted.form is Form.OBJECT else (list, tuple)
        if wanted.takes_none:
            self._given |= {type(None)}

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Return a value as JSON; raises as `JsonSerDe.serialize`, or TypeError for another type."""
        if not isinstance(input, self._taken):
            raise TypeError(f"{self._wanted}, and the function returned {type(input).__name__}; change one of the two")
        return self._json.serialize(input)

    def deserialize(self, input_bytes: bytes) -> Any:
        """Return the decoded JSON; raises as `JsonSerDe.deserialize`, or ValueError for another type."""
        value = self._json.deserialize(input_bytes)
        if type(value) not in self._given:
            raise ValueError(f"{self._wanted}, and the message is JSON of {type(value).__name__}")
        return value

    def serialize_all(self, values: Sequence[Any]) -> list[bytes | None] | None:
        """Return values as JSON, None for None; or None if one is invalid."""
        kinds = set(map(type, values)) - {type(None)}
        return self._json.serialize_all(values) if all(issubclass(kind, self._taken) for kind in kinds) else None

    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any] | None:
        """Return the decoded messages, or None if one is invalid."""
        values = self._json.deserialize_all(messages)
        return None if values is None or not self._given.issuperset(map(type, values)) else values


def _all_or_none(convert: Any, messages: Sequence[bytes]) -> list[Any] | None:
    """Return converted messages, or None if one cannot be converted."""
    try:
        return list(map(convert, messages))
    except (ValueError, KeyError):
        return None
