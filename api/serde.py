"""SerDes, which convert between messages and Python values, according to the SerDe contract of Pulsar Functions.

Without a SerDe, Pulsar passes a function an int, float or complex number if the message can be parsed as one, tried in
that order; otherwise a str; otherwise the bytes. `IdentitySerDe` avoids trying all three types on every message, which
would cost more than all other processing: it recognises strings that cannot be numbers by their first character. The
result is the same for every input; a test compares the two on random inputs.

Our SerDes also convert whole batches (`BatchSerDe`), because a Python statement per message costs as much as the
conversion itself.
"""

from __future__ import annotations

import json
import json.encoder
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, NoReturn


class SerDe(ABC):
    """Converts between values and message bytes. Created once, without arguments."""

    @abstractmethod
    def serialize(self, input: Any) -> bytes:  # noqa: A002  the name is Pulsar's
        """Return a value as bytes."""

    @abstractmethod
    def deserialize(self, input_bytes: bytes) -> Any:
        """Return the value encoded in bytes."""


class BatchSerDe(SerDe):
    """A SerDe that converts multiple values per call, in C code where possible.

    The batch methods are not used in a subclass that changes the conversion of single messages, unless the subclass
    also overrides the batch methods.
    """

    @abstractmethod
    def serialize_all(self, values: Sequence[Any]) -> list[bytes | None] | None:
        """Serialize values, with None for None.

        Returns None if a value is invalid and values must be converted one by one.
        """

    @abstractmethod
    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any] | None:
        """Deserialize messages. Returns None if a message is invalid and messages must be converted one by one."""


def takes_batches(serde: SerDe) -> bool:
    """Return whether a SerDe converts whole batches in the same way as single messages."""
    return isinstance(serde, BatchSerDe) and "deserialize_all" in vars(type(serde))


class PickleSerDe(SerDe):
    """Pickle. Use only with trusted producers."""

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Return the pickled value."""
        return pickle.dumps(input)

    def deserialize(self, input_bytes: bytes) -> Any:
        """Return the unpickled value."""
        return pickle.loads(input_bytes)  # noqa: S301 (the author chose it)


# No number, in any script, starts with one of these characters: numbers start with a digit, sign, point, whitespace or
# bracket, or with inf, nan or j.
_NO_NUMBER = frozenset("abcdefghklmopqrstuvwxyzABCDEFGHKLMOPQRSTUVWXYZ!\"#$%&'*,/:;<=>?@[\\]^_`{|}~") | {""}
_NUMBERS = (int, float, complex)


class IdentitySerDe(BatchSerDe):
    """The default SerDe: strings and numbers as UTF-8, bytes unchanged."""

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Return a str, bytes, int, float or complex value as bytes.

        Unlike in Pulsar, subclasses of str are accepted, because batches of strings are encoded without checking each
        one.

        Raises:
            TypeError: the value has another type, including bool and None.
        """
        if isinstance(input, str):
            return str.encode(input)
        kind = type(input)
        if kind is bytes:
            return bytes(input)
        if kind in _NUMBERS:
            return str(input).encode("utf-8")
        raise TypeError(f"IdentitySerDe cannot serialize {kind.__name__}: {_remedy(kind)}")

    def deserialize(self, input_bytes: bytes) -> Any:
        """Return the message as an int, float, complex or str, whichever parses first, or as bytes."""
        try:
            text = input_bytes.decode("utf-8")
        except UnicodeDecodeError:
            return input_bytes
        return text if text[:1] in _NO_NUMBER else _number_or_text(text)

    def serialize_all(self, values: Sequence[Any]) -> list[bytes | None] | None:
        """Return the bytes of values if all are strings, or None."""
        try:
            return list(map(str.encode, values))
        except (TypeError, UnicodeEncodeError):
            return None

    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any]:
        """Return the same results as `deserialize` for each message, about five times as fast."""
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


def _remedy(kind: type) -> str:
    """Return advice for a function that returned a value of this type."""
    for base in (dict, list, bool):
        if issubclass(kind, base):
            return f"set outputSerdeClassName to JsonSerDe, or annotate the return type -> {base.__name__}"
    if issubclass(kind, tuple):
        return "set outputSerdeClassName to JsonSerDe, or return a list and annotate the return type -> list"
    return (
        f"return str, bytes, int, float or complex, annotate the return type -> {kind.__name__} for a dataclass or "
        f"model, or set outputSerdeClassName"
    )


_TOO_DEEP = "nested too deeply"


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not valid JSON")


def _make_encoder() -> Callable[[Any, int], Iterable[str]]:
    """Return a JSON encoder that yields pieces. Its second argument is 0.

    `JSONEncoder.encode` creates such an encoder for each value, which takes longer than the encoding itself. A shared
    encoder cannot detect circular references, so encoding a value that contains itself raises RecursionError.
    """
    encoder = json.JSONEncoder(check_circular=False, separators=(",", ":"), allow_nan=False)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return lambda value, _: (encoder.encode(value),)
    made: Callable[[Any, int], Iterable[str]] = make(
        None, encoder.default, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, False
    )
    return made


_encode = _make_encoder()
_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
_decode: Callable[[str], Any] = _decoder.decode
_scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once  # type: ignore[attr-defined]  # missing in typeshed
"""Returns the value at an index of a string, and its end index. Twice as fast as `decode`, as it skips no whitespace.
"""


class JsonSerDe(BatchSerDe):
    """JSON in UTF-8: dict, list, str, int, float, bool and None.

    Numbers may have any size. If a name occurs twice in an object, the last value is used. NaN and Infinity, which are
    not valid JSON, are rejected in both directions. Unpaired surrogates are read and written as JSON escapes.
    """

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Return a value as ASCII JSON without whitespace.

        Raises:
            TypeError: the type cannot be represented in JSON. The message contains the type.
            ValueError: the value is NaN or infinite, contains itself, or is nested too deeply.
        """
        try:
            return "".join(_encode(input, 0)).encode()
        except RecursionError:
            why = f"{_TOO_DEEP}, or contains itself"
        except TypeError as error:
            raise TypeError(
                f"JsonSerDe cannot serialize {type(input).__name__}: {error}: return dict, list, str, int, float or "
                f"bool"
            ) from None
        except ValueError as error:
            why = str(error)
        raise ValueError(f"JsonSerDe cannot serialize {type(input).__name__}: {why}")

    def deserialize(self, input_bytes: bytes) -> Any:
        """Return the decoded JSON value.

        Raises:
            ValueError: the bytes are not valid JSON. The message contains the location of the error.
        """
        try:
            return _decode(input_bytes.decode())
        except RecursionError:
            why = _TOO_DEEP
        except UnicodeDecodeError as error:
            why = f"invalid UTF-8 at byte {error.start}"
        except ValueError as error:
            why = " ".join(str(error).split())
        raise ValueError(f"message of {len(input_bytes)} bytes is not valid JSON: {why}")

    def serialize_all(self, values: Sequence[Any]) -> list[bytes | None] | None:
        """Return values as JSON, with None for None, or return None if a value is invalid."""
        try:
            return [None if value is None else "".join(_encode(value, 0)).encode() for value in values]
        except Exception:  # noqa: BLE001  user classes may raise any exception; `serialize` finds the value that failed
            return None

    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any] | None:
        """Return the decoded messages, or None if a message is not valid JSON."""
        try:
            texts = list(map(bytes.decode, messages))
            found = list(map(_scan, texts, repeat(0)))  # stops early at a message that does not start with JSON
            if len(found) == len(texts) and [end for _, end in found] == list(map(len, texts)):
                return [value for value, _ in found]
            return list(map(_decode, texts))
        except (ValueError, RecursionError):
            return None
