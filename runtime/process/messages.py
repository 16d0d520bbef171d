"""Messages between a worker and its zygote: JSON objects, each behind its length in four bytes."""

from __future__ import annotations

import json
from struct import Struct
from typing import Any

from ...errors import ProtocolError

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
_LENGTH = Struct(">I")
LENGTH_BYTES = _LENGTH.size

LEASE_S = 3.0
"""A worker that is stopped (SIGSTOP) and says nothing for so long has lost its instances; a broker with a keep-alive of
2 s, the shortest sound one, lets others have them 4 s after its last word."""

HELD_LEASE_S = 60.0
"""The same for a worker that is not stopped. A thread function may hold its interpreter (a regular expression, a call
into C), so that it says nothing. Its processes need nothing of it meanwhile, and their locks keep others from their
work. A broker with the default keep-alive gives such a worker up after so long; then others wait for the locks."""

LOOK_S = 0.25
"""How often the zygote looks whether a silent worker is stopped."""

BEAT_S = 0.5
"""Seconds between two heartbeats of a worker."""


def encode(message: dict[str, Any]) -> bytes:
    """Return the bytes of a message."""
    body = json.dumps(message).encode()
    return _LENGTH.pack(len(body)) + body


def body_bytes(head: bytes) -> int:
    """Return how long the message behind a length is.

    Raises:
        ProtocolError: it is longer than `MESSAGE_BYTES_MAX`.
    """
    (length,) = _LENGTH.unpack(head)
    if length > MESSAGE_BYTES_MAX:
        raise ProtocolError(f"message of {length} bytes between worker and zygote exceeds {MESSAGE_BYTES_MAX}")
    return int(length)


def take(buffer: bytearray) -> dict[str, Any] | None:
    """Remove the first whole message from a buffer and return it, or None if there is none yet."""
    if len(buffer) < LENGTH_BYTES:
        return None
    end = LENGTH_BYTES + body_bytes(bytes(buffer[:LENGTH_BYTES]))
    if len(buffer) < end:
        return None
    message: dict[str, Any] = json.loads(buffer[LENGTH_BYTES:end])
    del buffer[:end]
    return message
