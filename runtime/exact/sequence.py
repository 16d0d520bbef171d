"""Sequence ids made of input positions: what a repeated input sends again carries the number that it had before.

``ledger << 30 | entry << 10 | j``: the broker's deduplication drops a number that is not higher than the last one of
its producer. An input partition has a producer of its own, so its numbers rise as its entries come; ``j`` counts the
output entries that one input entry makes on one topic partition.
"""

from __future__ import annotations

from ...errors import MagnetarError
from ..state.values import Position

LEDGER_MAX = 2**33 - 1
ENTRY_MAX = 2**20 - 1
OUTPUTS_MAX = 2**10  # of one input entry on one topic partition
_ENTRY_BITS = 20
_OUTPUT_BITS = 10


class SequenceOverflow(MagnetarError):
    """An input position or a number of outputs does not fit into a sequence id."""


def sequence_id(position: Position, output: int = 0) -> int:
    """Return the sequence id of an output entry.

    Args:
        position: of the input entry.
        output: which of its output entries on that topic partition.

    Raises:
        SequenceOverflow: a part is larger than its bits.
    """
    ledger_id, entry_id = position
    if ledger_id > LEDGER_MAX:
        raise SequenceOverflow(
            f"ledger id {ledger_id} of the input exceeds {LEDGER_MAX}, the limit of EFFECTIVELY_ONCE; on this cluster"
            " use ATLEAST_ONCE, in a process or thread"
        )
    if entry_id > ENTRY_MAX:
        raise SequenceOverflow(
            f"entry id {entry_id} of the input exceeds {ENTRY_MAX}, the limit of EFFECTIVELY_ONCE; let the broker close"
            " ledgers earlier (managedLedgerMaxEntriesPerLedger)"
        )
    if output >= OUTPUTS_MAX:
        raise SequenceOverflow(
            f"input entry {ledger_id}:{entry_id} makes more than {OUTPUTS_MAX} output entries on one topic, the limit"
            " of EFFECTIVELY_ONCE; return less for one input batch, or publish smaller input batches"
        )
    return ledger_id << (_ENTRY_BITS + _OUTPUT_BITS) | entry_id << _OUTPUT_BITS | output


def position_of_sequence(number: int) -> Position:
    """Return the input position that a sequence id was made of."""
    return Position(number >> (_ENTRY_BITS + _OUTPUT_BITS), number >> _OUTPUT_BITS & ENTRY_MAX)
