"""Sequence ids made of input positions: what a repeated input sends again carries the number that it had before.

``ledger << 30 | entry << 10 | j``: the broker's deduplication drops a number that is not higher than the last one of
its producer. An input partition has a producer of its own, so its numbers rise as its entries come; ``j`` counts the
output entries that one input entry makes on one topic partition.

20 bits are enough for the entries of most ledgers, but not of all: a broker may close them by size or time only. So a
ledger is a row of *segments* of 2^20 entries. The entries of the first are numbered as said, under the partition's own
name; those of each other one by their place in it, under a name with the segment's number. A position has one name and
number for ever, and under each name the numbers rise with the positions.

Invariant: the outputs of one segment are all stored before the first one of another is sent, so the highest position
that is stored under any name says that everything before it is stored.
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
    """An input position or a number of outputs does not fit into a sequence id."""


class Segment(NamedTuple):
    """What numbers the outputs of some entries: a producer's name and the numbers under it."""

    number: int

    def producer_name(self, name: str) -> str:
        """Return the name of the producer of this segment, given that of the partition."""
        # In front: no tenant's name, with which the other begins, has this character.
        return f"~{self.number}/{name}" if self.number else name

    def sequence_id(self, position: Position, output: int = 0) -> int:
        """Return the sequence id of an output entry; raises as the function `sequence_id`."""
        assert position.entry_id >> _ENTRY_BITS == self.number
        return sequence_id(position, output)

    def first_number(self, start: Position) -> int:
        """Return the lowest sequence id that a position of this segment has at ``start`` or behind it.

        All positions of the segment before ``start`` have lower ones. Raises as the function `sequence_id`.
        """
        at_start = start.entry_id >> _ENTRY_BITS
        if at_start == self.number:
            return sequence_id(start)
        return sequence_id(Position(start.ledger_id + (at_start > self.number), 0))

    def position(self, number: int) -> Position:
        """Return the input position that a sequence id was made of."""
        ledger_id, entry_id = position_of_sequence(number)
        return Position(ledger_id, self.number << _ENTRY_BITS | entry_id)


FIRST_SEGMENT = Segment(0)


def segment_of(position: Position) -> Segment:
    """Return the segment of an input position."""
    number = position.entry_id >> _ENTRY_BITS
    return FIRST_SEGMENT if not number else Segment(number)


def segments_after(acknowledged: Position | None) -> list[Segment]:
    """Return the segments that outputs may be of whose input is not acknowledged, the nearest one last.

    It is the first one of a ledger, that of the position itself, and the next one if that is near: an instance is never
    so far ahead of what is acknowledged that it would have left out half a segment.
    """
    if acknowledged is None or acknowledged.entry_id < 0:
        return [FIRST_SEGMENT]
    nearest = acknowledged.entry_id >> _ENTRY_BITS
    numbers = {0, nearest}
    if acknowledged.entry_id & ENTRY_MAX > ENTRY_MAX // 2:
        numbers.add(nearest + 1)
    return [Segment(number) for number in [*sorted(numbers - {nearest}), nearest]]


def sequence_id(position: Position, output: int = 0) -> int:
    """Return the sequence id of an output entry, under the name of its position's segment.

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
    if output >= OUTPUTS_MAX:
        raise SequenceOverflow(
            f"input entry {ledger_id}:{entry_id} makes more than {OUTPUTS_MAX} output entries on one topic, the limit"
            " of EFFECTIVELY_ONCE; return less for one input batch, or publish smaller input batches"
        )
    return ledger_id << (_ENTRY_BITS + _OUTPUT_BITS) | (entry_id & ENTRY_MAX) << _OUTPUT_BITS | output


def position_of_sequence(number: int) -> Position:
    """Return the input position that a sequence id of the first segment was made of."""
    return Position(number >> (_ENTRY_BITS + _OUTPUT_BITS), number >> _OUTPUT_BITS & ENTRY_MAX)


def first_message_number(position: Position, messages: int) -> int:
    """Return the number of an entry's first message; those behind it follow.

    It is ``ledger << 34 | entry << 12 | index``, below 2^63, and grows with the position. What a sink keeps in its
    target is one number of a topic, so there are no segments here.

    Args:
        position: of the entry.
        messages: how many it has.

    Raises:
        SequenceOverflow: a part is larger than its bits.
    """
    ledger_id, entry_id = position
    number = ledger_id << (_NUMBER_ENTRY_BITS + _NUMBER_INDEX_BITS) | entry_id << _NUMBER_INDEX_BITS
    if entry_id >> _NUMBER_ENTRY_BITS or messages > MESSAGES_MAX or number >> 63:
        raise SequenceOverflow(
            f"entry {ledger_id}:{entry_id} of {messages} messages has no number: the limits of EFFECTIVELY_ONCE are"
            f" ledger id {2**29 - 1}, entry {2**_NUMBER_ENTRY_BITS - 1} of a ledger and {MESSAGES_MAX} messages of an"
            " entry; use ATLEAST_ONCE for this topic"
        )
    return number
