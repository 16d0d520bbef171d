"""How messages become Python values and back: the SerDe contract of Pulsar Functions.

Design of `IdentitySerDe`: without a SerDe, Pulsar hands a function an int, a float or a complex number where the text
of a message is one, in that order, else a str, else the bytes. Trying all three on every message costs more than all
the rest of the work, so a text that cannot begin a number is recognised by its first character. The result is the
same for every input; a test compares the two on random ones.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any


class SerDe(ABC):
    """Converts between values and the bytes of messages; made once, without arguments."""

    @abstractmethod
    def serialize(self, input: Any) -> bytes:  # noqa: A002  the name is Pulsar's
        """Return the bytes of a value."""

    @abstractmethod
    def deserialize(self, input_bytes: bytes) -> Any:
        """Return the value of bytes."""


class PickleSerDe(SerDe):
    """Python's own serialisation; reads only what trusted producers wrote."""

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Return the value pickled."""
        return pickle.dumps(input)

    def deserialize(self, input_bytes: bytes) -> Any:
        """Return the pickled value."""
        return pickle.loads(input_bytes)


# No number, in any script, begins with one of these: numbers begin with a digit, a sign, a point, white space, a
# bracket, or with inf, nan and j.
_NO_NUMBER = frozenset("abcdefghklmopqrstuvwxyzABCDEFGHKLMOPQRSTUVWXYZ!\"#$%&'*,/:;<=>?@[\\]^_`{|}~") | {""}
_NUMBERS = (int, float, complex)


class IdentitySerDe(SerDe):
    """The default: text and numbers as UTF-8, bytes as they are."""

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Return the bytes of a str, bytes, int, float or complex.

        Subclasses of str are taken too, which Pulsar refuses: a batch of text is encoded without a look at each.

        Raises:
            TypeError: the value is of another type, bool and None included.
        """
        if isinstance(input, str):
            return str.encode(input)
        kind = type(input)
        if kind is bytes:
            return bytes(input)
        if kind in _NUMBERS:
            return str(input).encode("utf-8")
        raise TypeError(
            f"IdentitySerDe cannot serialize {kind.__name__}; return str, bytes, int, float or complex, or set a SerDe"
        )

    def deserialize(self, input_bytes: bytes) -> Any:
        """Return the message as int, float, complex, str or bytes, the first that fits."""
        try:
            text = input_bytes.decode("utf-8")
        except UnicodeDecodeError:
            return input_bytes
        return text if text[:1] in _NO_NUMBER else _number_or_text(text)

    def serialize_all(self, values: Sequence[Any]) -> list[bytes] | None:
        """Return the bytes of values that are all text, or None if they are not."""
        try:
            return list(map(str.encode, values))
        except (TypeError, UnicodeEncodeError):
            return None

    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any]:
        """Return what `deserialize` returns for each message, in a fifth of the time."""
        try:
            texts = list(map(bytes.decode, messages))
        except UnicodeDecodeError:
            return [self.deserialize(message) for message in messages]
        return [text if text[:1] in _NO_NUMBER else _number_or_text(text) for text in texts]


def _number_or_text(text: str) -> Any:
    for kind in _NUMBERS:
        try:
            return kind(text)
        except ValueError:
            continue
    return text
