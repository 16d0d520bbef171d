"""Which ledgers of a log may go: a pure decision.

A ledger goes when every durable cursor is past it and the log keeps more than retention asks for: it was closed longer
ago than the time limit, or the log is larger than the size limit. As in Apache Pulsar, a limit of -1 keeps without end,
and where both limits are set, passing either one is enough. Publish times do not count: they are what producers claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ClosedLedger(NamedTuple):
    """A ledger that takes no more entries, all of them confirmed.

    Attributes:
        id: its id.
        bytes: payload bytes in it.
        closed_ms: when it was closed, by the broker's clock: no entry came later.
        is_consumed: every durable cursor is past it.
    """

    id: int
    bytes: int
    closed_ms: int
    is_consumed: bool


def ledgers_to_drop(
    ledgers: Sequence[ClosedLedger], open_bytes: int, retention_ms: int, retention_bytes: int, now_ms: int
) -> list[int]:
    """Return the ids of the ledgers to delete: always the oldest ones, without a gap.

    Args:
        ledgers: the log's closed ledgers, oldest first.
        open_bytes: size of the rest of the log.
        retention_ms: how long consumed entries are kept; -1 for ever.
        retention_bytes: how much of the log is kept; -1 for all.
        now_ms: the time.
    """
    total = open_bytes + sum(ledger.bytes for ledger in ledgers)
    drop = []
    for ledger in ledgers:
        is_expired = retention_ms >= 0 and now_ms - ledger.closed_ms >= retention_ms
        # Dropping must leave at least what the size limit grants.
        is_over = retention_bytes >= 0 and total - ledger.bytes >= retention_bytes
        if not ledger.is_consumed or not (is_expired or is_over):
            break
        drop.append(ledger.id)
        total -= ledger.bytes
    return drop
