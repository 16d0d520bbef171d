"""Convert values of records to and from bytes, the default without a SerDe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...api.serde import SerDe
from ...errors import MagnetarError
from ..batch_call import Failure, decode


class WrongRecord(MagnetarError):
    """A source returned a value whose type cannot be a message; the instance ends without losing records."""


class BytesSerDe(SerDe):
    """Passes bytes through unchanged, and encodes strings as UTF-8.

    Unlike for functions, messages that look like numbers are not converted: ``007`` remains ``b"007"``.
    """

    def serialize(self, input: Any) -> bytes:  # noqa: A002
        """Return bytes unchanged, and a string encoded as UTF-8."""
        if isinstance(input, str):
            return input.encode()
        if isinstance(input, bytes | bytearray | memoryview):
            return bytes(input)
        raise WrongRecord(
            f"a record's value of type {type(input).__name__} requires a SerDe: return str or bytes, such as"
            " json.dumps(value), or set a SerDe"
        )

    def deserialize(self, input_bytes: bytes) -> bytes:
        """Return the bytes unchanged."""
        return input_bytes


def decoded(messages: Sequence[bytes], serde: SerDe, failures: list[Failure]) -> list[Any]:
    """Decode messages; failures become None and are added to ``failures``."""
    return list(messages) if type(serde) is BytesSerDe else decode(messages, serde, failures)


def encoded(values: list[Any], serde: SerDe) -> list[bytes]:
    """Encode a list of values.

    Raises:
        Exception: the SerDe cannot encode a value.
    """
    if type(serde) is BytesSerDe and set(map(type, values)) == {bytes}:
        return values
    return list(map(serde.serialize, values))
