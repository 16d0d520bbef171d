"""How messages become Python values and back: the SerDe contract of Pulsar Functions.

Design of `IdentitySerDe`: without a SerDe, Pulsar hands a function an int, a float or a complex number where the text
of a message is one, in that order, else a str, else the bytes. Trying all three on every message costs more than all
the rest of the work, so a text that cannot begin a number is recognised by its first character. The result is the
same for every input; a test compares the two on random ones.

SerDes of this package convert whole batches too (`BatchSerDe`): a Python statement per message costs as much as the
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
    """Converts between values and the bytes of messages; made once, without arguments."""

    @abstractmethod
    def serialize(self, input: Any) -> bytes:  # noqa: A002  the name is Pulsar's
        """Return the bytes of a value."""

    @abstractmethod
    def deserialize(self, input_bytes: bytes) -> Any:
        """Return the value of bytes."""


class BatchSerDe(SerDe):
    """A SerDe that converts many values in one call, by C code where it can.

    A subclass that changes how one message is converted is not asked for batches, unless it has these methods itself.
    """

    @abstractmethod
    def serialize_all(self, values: Sequence[Any]) -> list[bytes | None] | None:
        """Return the bytes of values, None for None; or None if they are to be taken one by one, as one is refused."""

    @abstractmethod
    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any] | None:
        """Return the values of messages, or None if they are to be taken one by one, as one is refused."""


def takes_batches(serde: SerDe) -> bool:
    """Return whether a SerDe converts whole batches just as it converts single messages."""
    return isinstance(serde, BatchSerDe) and "deserialize_all" in vars(type(serde))


class PickleSerDe(SerDe):
    """Python's own serialisation; reads only what trusted producers wrote."""

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Return the value pickled."""
        return pickle.dumps(input)

    def deserialize(self, input_bytes: bytes) -> Any:
        """Return the pickled value."""
        return pickle.loads(input_bytes)  # noqa: S301 (the author chose it)


# No number, in any script, begins with one of these: numbers begin with a digit, a sign, a point, white space, a
# bracket, or with inf, nan and j.
_NO_NUMBER = frozenset("abcdefghklmopqrstuvwxyzABCDEFGHKLMOPQRSTUVWXYZ!\"#$%&'*,/:;<=>?@[\\]^_`{|}~") | {""}
_NUMBERS = (int, float, complex)


class IdentitySerDe(BatchSerDe):
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
        raise TypeError(f"IdentitySerDe cannot serialize {kind.__name__}; {_remedy(kind)}")

    def deserialize(self, input_bytes: bytes) -> Any:
        """Return the message as int, float, complex, str or bytes, the first that fits."""
        try:
            text = input_bytes.decode("utf-8")
        except UnicodeDecodeError:
            return input_bytes
        return text if text[:1] in _NO_NUMBER else _number_or_text(text)

    def serialize_all(self, values: Sequence[Any]) -> list[bytes | None] | None:
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


def _remedy(kind: type) -> str:
    """Return what helps where a value of a kind was returned."""
    for base in (dict, list, bool):
        if issubclass(kind, base):
            return f"give outputSerdeClassName JsonSerDe, or annotate the return type -> {base.__name__}"
    if issubclass(kind, tuple):
        return "give outputSerdeClassName JsonSerDe, or return a list and annotate the return type -> list"
    return (
        f"return str, bytes, int, float or complex, annotate the return type -> {kind.__name__} if that is a dataclass"
        " or a model, or give an outputSerdeClassName"
    )


_TOO_DEEP = "it nests too deep"


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _make_encoder() -> Callable[[Any, int], Iterable[str]]:
    """Return what makes JSON of a value, in pieces; the second argument is 0.

    `JSONEncoder.encode` makes one of these for each value, which takes longer than what it then does. Made once it
    cannot remember what a value is inside of: one that contains itself ends at the limit of recursion.
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
_scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once  # type: ignore[attr-defined]  # typeshed has it not
"""Returns the value at an index of a text, and where it ends; in half the time, as it looks for no white space."""


class JsonSerDe(BatchSerDe):
    """JSON in UTF-8: dict, list, str, int, float, bool and None.

    Numbers have any size. Where a name is twice in an object, the later one counts. NaN and Infinity, which JSON has
    not, are refused in both directions. Half of a surrogate pair goes in and out as the escape that it is in JSON.
    """

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Return a value as JSON without white space, in ASCII.

        Raises:
            TypeError: JSON has no such value; names its type.
            ValueError: it is NaN or infinite, contains itself, or nests too deep.
        """
        try:
            return "".join(_encode(input, 0)).encode()
        except RecursionError:
            why = f"{_TOO_DEEP}, or contains itself"
        except TypeError as error:
            raise TypeError(
                f"JsonSerDe cannot serialize {type(input).__name__}: {error}; return dict, list, str, int, float, bool"
            ) from None
        except ValueError as error:
            why = str(error)
        raise ValueError(f"JsonSerDe cannot serialize {type(input).__name__}: {why}")

    def deserialize(self, input_bytes: bytes) -> Any:
        """Return what JSON says.

        Raises:
            ValueError: the bytes are none; says where.
        """
        try:
            return _decode(input_bytes.decode())
        except RecursionError:
            why = _TOO_DEEP
        except UnicodeDecodeError as error:
            why = f"no UTF-8 from byte {error.start} on"
        except ValueError as error:
            why = " ".join(str(error).split())
        raise ValueError(f"a message of {len(input_bytes)} bytes is no JSON: {why}")

    def serialize_all(self, values: Sequence[Any]) -> list[bytes | None] | None:
        """Return values as JSON, or None if one of them has none; None stays None."""
        try:
            return [None if value is None else "".join(_encode(value, 0)).encode() for value in values]
        except Exception:  # noqa: BLE001  a value may be of a class of the user's; which one it is, `serialize` finds out
            return None

    def deserialize_all(self, messages: Sequence[bytes]) -> list[Any] | None:
        """Return what messages say, or None if one is no JSON."""
        try:
            texts = list(map(bytes.decode, messages))
            found = list(map(_scan, texts, repeat(0)))  # ends early where a text begins with no JSON
            if len(found) == len(texts) and [end for _, end in found] == list(map(len, texts)):
                return [value for value, _ in found]
            return list(map(_decode, texts))
        except (ValueError, RecursionError):
            return None
