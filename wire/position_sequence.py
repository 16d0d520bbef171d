"""Sequence ids derived from input positions, so that reprocessed input yields outputs with the same sequence ids.

A sequence id is ``ledger << 30 | entry << 10 | j``. The broker's deduplication drops a number that is not higher than
its producer's last one. Each input partition has its own producer, so its numbers increase with its entries; ``j``
counts the output entries that an input entry produces on one topic partition.

20 bits are enough for the entries of most ledgers but not all, as a broker may close ledgers only by size or time. A
ledger is therefore divided into *segments* of 2^20 entries. Entries of the first segment are numbered as above, under
the partition's own producer name; entries of other segments by their offset in the segment, under a name that includes
the segment's number. A position always has the same name and number, and under each name the numbers increase with the
positions.

Invariant: all outputs of one segment are stored before the first output of another is sent, so the highest position
stored under any name implies that everything before it is stored.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import MagnetarError
from .position import Position

LEDGER_MAX = 2**33 - 1
ENTRY_MAX = 2**20 - 1
OUTPUTS_MAX = 2**10  # of one input entry on one topic partition
_ENTRY_BITS = 20
_OUTPUT_BITS = 10
_NUMBER_ENTRY_BITS = 22
_NUMBER_INDEX_BITS = 12
MESSAGES_MAX = 2**_NUMBER_INDEX_BITS  # of one entry


class SequenceOverflow(MagnetarError):
    """An input position, or the number of outputs, does not fit into a sequence id."""


class Segment(NamedTuple):
    """Range of entries whose outputs share a producer name."""

    number: int

    def producer_name(self, name: str) -> str:
        """Return the producer name of this segment, given that of the partition."""
        # As a prefix: the partition's name begins with the tenant, which cannot contain this character.
        return f"~{self.number}/{name}" if self.number else name

    def sequence_id(self, position: Position, output: int = 0) -> int:
        """Return the sequence id of an output entry. Raises the same errors as the function `sequence_id`."""
        assert position.entry_id >> _ENTRY_BITS == self.number
        return sequence_id(position, output)

    def first_number(self, start: Position) -> int:
        """Return the lowest sequence id of this segment's positions from ``start`` on.

        All earlier positions of the segment have lower ids. Raises the same errors as the function `sequence_id`.
        """
        at_start = start.entry_id >> _ENTRY_BITS
        if at_start == self.number:
            return sequence_id(start)
        return sequence_id(Position(start.ledger_id + (at_start > self.number), 0))

    def position(self, number: int) -> Position:
        """Return the input position from which a sequence id was derived."""
        ledger_id, entry_id = position_of_sequence(number)
        return Position(ledger_id, self.number << _ENTRY_BITS | entry_id)


FIRST_SEGMENT = Segment(0)


def segment_of(position: Position) -> Segment:
    """Return the segment of an input position."""
    number = position.entry_id >> _ENTRY_BITS
    return FIRST_SEGMENT if not number else Segment(number)


def segments_after(acknowledged: Position | None) -> list[Segment]:
    """Return the segments to which outputs of unacknowledged input may belong, nearest last.

    These are the first segment of a ledger, that of the position itself, and the next one if it is near. An instance is
    never more than half a segment ahead of the acknowledged position.
    """
    if acknowledged is None or acknowledged.entry_id < 0:
        return [FIRST_SEGMENT]
    nearest = acknowledged.entry_id >> _ENTRY_BITS
    numbers = {0, nearest}
    if acknowledged.entry_id & ENTRY_MAX > ENTRY_MAX // 2:
        numbers.add(nearest + 1)
    return [Segment(number) for number in [*sorted(numbers - {nearest}), nearest]]


def sequence_id(position: Position, output: int = 0) -> int:
    """Return the sequence id of an output entry under the producer name of its position's segment.

    Args:
        position: position of the input entry.
        output: index of the output entry among the input's outputs on that topic partition.

    Raises:
        SequenceOverflow: a part does not fit into its bits.
    """
    ledger_id, entry_id = position
    if ledger_id > LEDGER_MAX:
        raise SequenceOverflow(
            f"ledger id {ledger_id} of the input exceeds {LEDGER_MAX}, the limit of EFFECTIVELY_ONCE: on this cluster"
            " use ATLEAST_ONCE, in a process or thread"
        )
    if output >= OUTPUTS_MAX:
        raise SequenceOverflow(
            f"input entry {ledger_id}:{entry_id} produces more than {OUTPUTS_MAX} output entries on one topic, the"
            " limit of EFFECTIVELY_ONCE: return fewer outputs per input batch, or publish smaller input batches"
        )
    return ledger_id << (_ENTRY_BITS + _OUTPUT_BITS) | (entry_id & ENTRY_MAX) << _OUTPUT_BITS | output


def position_of_sequence(number: int) -> Position:
    """Return the input position from which a sequence id of the first segment was derived."""
    return Position(number >> (_ENTRY_BITS + _OUTPUT_BITS), number >> _OUTPUT_BITS & ENTRY_MAX)


def first_message_number(position: Position, messages: int) -> int:
    """Return the number of an entry's first message. Its other messages have consecutive numbers.

    The number is ``ledger << 34 | entry << 12 | index``, below 2^63, and increases with the position. Sinks store one
    number per topic in their target, so segments are not used here.

    Args:
        position: position of the entry.
        messages: number of messages in the entry.

    Raises:
        SequenceOverflow: a part does not fit into its bits.
    """
    ledger_id, entry_id = position
    number = ledger_id << (_NUMBER_ENTRY_BITS + _NUMBER_INDEX_BITS) | entry_id << _NUMBER_INDEX_BITS
    if entry_id >> _NUMBER_ENTRY_BITS or messages > MESSAGES_MAX or number >> 63:
        raise SequenceOverflow(
            f"entry {ledger_id}:{entry_id} of {messages} messages exceeds a limit of EFFECTIVELY_ONCE:"
            f" ledger id {2**29 - 1}, entry {2**_NUMBER_ENTRY_BITS - 1} of a ledger or {MESSAGES_MAX} messages per"
            " entry; use ATLEAST_ONCE for this topic"
        )
    return number
