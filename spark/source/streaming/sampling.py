"""Estimates the size of a topic's entries from the first unread entries."""

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
"""Number of messages to sample, rounded up to whole entries; 100 entries if each has one message."""
_WAIT_S = 5.0


class Estimate(NamedTuple):
    """Average size of an entry.

    Attributes:
        rows: number of messages.
        size: stored bytes.
    """

    rows: float
    size: float


def estimate(routes: Routes, topic: str, first: Position, entries: int, prefix: str) -> Estimate:
    """Return the average size of entries, estimated from the first ones.

    Raises:
        MagnetarError: the entries cannot be read at the moment.
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
        raise OperationTimeout(f"received no entry of {topic} within {_WAIT_S:g} s, although {entries} follow {first}")
    return Estimate(rows / seen, size / seen)
