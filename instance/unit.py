"""A unit of work: input entries processed as one run of messages, and what to acknowledge of them afterwards.

Design: the messages of the entries are laid one behind the other; a *position* counts through all of them, an *index*
counts inside one entry. The function's thread works through positions and ships outputs in pieces; the event loop
settles a piece when its outputs are stored. Only the loop calls `settle`, so nothing here needs a lock.

Invariant: an entry is acknowledged as a whole when each of its messages is settled and none failed; until then by ack
sets in which failed and unsettled messages stay wanted. Pieces may be settled in any order, because outputs on several
partitions are stored in any order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ..client.consumers.received import ReceivedEntry
from ..wire import ack_set


@dataclass(slots=True)
class Acknowledgements:
    """What to tell the broker.

    Attributes:
        whole: entries that are done.
        partial: entries of which the ack set's messages are still wanted.
        failed: indexes of an entry's messages to be delivered again later.
    """

    whole: list[ReceivedEntry] = field(default_factory=list)
    partial: list[tuple[ReceivedEntry, ack_set.AckSet]] = field(default_factory=list)
    failed: list[tuple[ReceivedEntry, tuple[int, ...]]] = field(default_factory=list)


class Unit:
    """Entries and the positions of their messages.

    Attributes:
        entries: in the order of arrival.
        messages: all payloads, one behind the other.
        failed_entries: entries of which a settled message failed, each once.
    """

    __slots__ = ("_indexes", "_open", "_settled", "_starts", "entries", "failed_entries", "messages")

    def __init__(self) -> None:
        self.entries: list[ReceivedEntry] = []
        self.messages: list[bytes] = []
        self.failed_entries: list[ReceivedEntry] = []
        self._settled = 0  # positions
        self._starts: list[int] = []
        self._indexes: list[Sequence[int]] = []  # of each entry, the indexes that have positions
        self._open: list[set[int]] = []  # of each entry, the indexes not settled yet or failed; filled when needed

    def __len__(self) -> int:
        return len(self.messages)

    def add(self, entry: ReceivedEntry, indexes: Sequence[int] | None = None) -> None:
        """Lay an entry behind the others.

        Args:
            entry: what arrived.
            indexes: the messages that are wanted, at least one, ascending; None for all.
        """
        self.entries.append(entry)
        self._starts.append(len(self.messages))
        if indexes is None:
            self._indexes.append(range(len(entry.payloads)))
            self.messages += entry.payloads
        else:
            self._indexes.append(indexes)
            self.messages += [entry.payloads[index] for index in indexes]

    def locate(self, position: int) -> tuple[ReceivedEntry, int]:
        """Return the entry and index of a position."""
        number = bisect_right(self._starts, position) - 1
        return self.entries[number], self._indexes[number][position - self._starts[number]]

    @property
    def is_settled(self) -> bool:
        """Whether every position is settled."""
        return self._settled == len(self.messages)

    def settle(self, begin: int, end: int, failed: Collection[int] = ()) -> Acknowledgements:
        """Note that the positions from ``begin`` to ``end`` are done, and return what to acknowledge.

        Args:
            begin: first position of the piece.
            end: position behind its last.
            failed: positions of messages that must come again.
        """
        self._settled += end - begin
        if not failed and begin == 0 and end == len(self.messages):
            return Acknowledgements(whole=self.entries)  # the usual case: one piece, all well
        if not self._open:
            self._open = [set(indexes) for indexes in self._indexes]
        acks = Acknowledgements()
        first = bisect_right(self._starts, begin) - 1
        for number in range(first, bisect_left(self._starts, end)):
            start, indexes = self._starts[number], self._indexes[number]
            positions = range(max(begin, start), min(end, start + len(indexes)))
            again = tuple(indexes[position - start] for position in positions if position in failed)
            done = {indexes[position - start] for position in positions if position not in failed}
            self._settle_entry(number, done, again, acks)
        return acks

    def _settle_entry(self, number: int, done: set[int], again: tuple[int, ...], acks: Acknowledgements) -> None:
        entry, open_indexes = self.entries[number], self._open[number]
        open_indexes -= done
        if again:
            acks.failed.append((entry, again))
            if entry not in self.failed_entries[-1:]:
                self.failed_entries.append(entry)
        if not open_indexes:
            acks.whole.append(entry)
        elif done:
            acks.partial.append((entry, ack_set.from_wanted(open_indexes)))
