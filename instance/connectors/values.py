"""Values of records as bytes, which is what they are where no SerDe is set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...api.serde import SerDe
from ...errors import MagnetarError
from ..batch_call import Failure, decode


class WrongRecord(MagnetarError):
    """A source gave something of which no message can be made, by its type; the instance ends, and nothing is lost."""


class BytesSerDe(SerDe):
    """Passes bytes on, and encodes texts.

    Unlike a function, a connector is not given a number where a message looks like one: ``007`` stays what it is.
    """

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Return bytes as they are, and a text as UTF-8."""
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
    """Return the values of messages; None for one that cannot be decoded, which is added to ``failures``."""
    return list(messages) if type(serde) is BytesSerDe else decode(messages, serde, failures)


def encoded(values: list[Any], serde: SerDe) -> list[bytes]:
    """Return values as bytes.

    Raises:
        Exception: whatever the SerDe raises for one of them.
    """
    if type(serde) is BytesSerDe and set(map(type, values)) == {bytes}:
        return values
    return list(map(serde.serialize, values))
