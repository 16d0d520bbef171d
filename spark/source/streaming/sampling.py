"""Estimates what the entries of a topic hold, by the first of those that wait."""

from __future__ import annotations

import contextlib
import time
from typing import NamedTuple

from ....errors import OperationTimeout
from ....wire.message_id import MessageId
from ....wire.payload import open_payload
from ....wire.position import Position
from ..connection import Routes
from ..reader import BlockingReader

SAMPLE_MESSAGES = 100
"""As many messages are looked at, rounded up to whole entries; so 100 entries that hold one message each."""
_WAIT_S = 5.0


class Estimate(NamedTuple):
    """What an entry holds, on the average.

    Attributes:
        rows: messages.
        size: bytes, as stored.
    """

    rows: float
    size: float


def estimate(routes: Routes, topic: str, first: Position, entries: int, prefix: str) -> Estimate:
    """Return what the first of so many entries hold, on the average.

    Raises:
        MagnetarError: they cannot be read now.
    """
    rows = size = seen = 0
    deadline = time.monotonic() + _WAIT_S
    with contextlib.closing(routes.connect_to(topic)) as connection:
        reader = BlockingReader(connection, topic, MessageId(*first), prefix)
        reader.flow(SAMPLE_MESSAGES)
        while seen < entries and rows < SAMPLE_MESSAGES:
            found = reader.next_entry(deadline)
            if found is None:
                break
            metadata, _ = open_payload(found[1])
            rows += max(1, metadata.num_messages_in_batch)
            size += len(found[1])
            seen += 1
    if not seen:
        raise OperationTimeout(f"no entry of {topic} came within {_WAIT_S:g} s, {entries} wait behind {first}")
    return Estimate(rows / seen, size / seen)
