"""Values of records as bytes, the default without a SerDe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...api.serde import SerDe
from ...errors import MagnetarError
from ..batch_call import Failure, decode


class WrongRecord(MagnetarError):
    """A source returned a value of a type that cannot be a message; the instance ends, and nothing is lost."""


class BytesSerDe(SerDe):
    """Passes bytes through, and encodes texts.

    Unlike functions, connectors do not get numbers for messages that look like one: ``007`` stays unchanged.
    """

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Return bytes unchanged, and a text as UTF-8."""
        if isinstance(input, str):
            return input.encode()
        if isinstance(input, bytes | bytearray | memoryview):
            return bytes(input)
        raise WrongRecord(
            f"a record's value is of type {type(input).__name__}, and no SerDe is set; give str or bytes, such as"
            " json.dumps(value), or set a SerDe"
        )

    def deserialize(self, input_bytes: bytes) -> bytes:
        """Return the bytes."""
        return input_bytes


def decoded(messages: Sequence[bytes], serde: SerDe, failures: list[Failure]) -> list[Any]:
    """Decode messages; one that cannot be decoded becomes None and is added to ``failures``."""
    return list(messages) if type(serde) is BytesSerDe else decode(messages, serde, failures)


def encoded(values: list[Any], serde: SerDe) -> list[bytes]:
    """Encode values.

    Raises:
        Exception: raised by the SerDe for one of them.
    """
    if type(serde) is BytesSerDe and set(map(type, values)) == {bytes}:
        return values
    return list(map(serde.serialize, values))
