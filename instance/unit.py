"""A unit of work: input entries that are processed as one run of messages, and their acknowledgements.

Design: the messages of the entries are concatenated; a *position* counts through all of them, an *index* within one
entry. The function's thread processes positions and ships outputs in pieces; the event loop settles a piece when its
outputs are stored. Only the loop calls `settle`, so no lock is needed.

Invariant: an entry is acknowledged as a whole when all its messages are settled and none failed. Until then ack sets
acknowledge its finished messages. Pieces may be settled in any order, because outputs on several partitions are stored
in any order.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..client.consumers.received import ReceivedEntry
from ..wire import ack_set

Position = tuple[str, int, int]
"""Topic, ledger and entry."""

HELD_MESSAGES_MAX = 20_000
HELD_BYTES_MAX = 64 * 1024 * 1024


def position_of(entry: ReceivedEntry) -> Position:
    """Return a key for an entry that is unique among all inputs of an instance while the entry exists.

    Entries of non-persistent topics all have position 0:0, but each gets its own key.
    """
    ledger_id, entry_id = entry.position
    if not ledger_id and entry.topic.startswith("non-persistent:"):
        entry_id = id(entry)
    return (entry.topic, ledger_id, entry_id)


class HeldEntries:
    """Entries in progress, by position.

    Attributes:
        room: set while more entries may be taken.
    """

    def __init__(self, messages_max: int = HELD_MESSAGES_MAX) -> None:
        """Create an empty set; ``messages_max`` may be exceeded only by the last entry."""
        self.room = asyncio.Event()
        self.room.set()
        self._sizes: dict[Position, tuple[int, int, ReceivedEntry]] = {}
        self._messages_max = messages_max
        self._messages = 0
        self._bytes = 0

    def __contains__(self, position: Position) -> bool:
        return position in self._sizes

    def add(self, position: Position, entry: ReceivedEntry) -> None:
        """Add an entry, and clear `room` at the limit."""
        # Record the size, because opening an entry releases its bytes.
        messages, size = entry.permits, entry.body_bytes
        self._sizes[position] = (messages, size, entry)
        self._messages += messages
        self._bytes += size
        if self._messages >= self._messages_max or self._bytes >= HELD_BYTES_MAX:
            self.room.clear()

    def set_aside(self, entry: ReceivedEntry) -> None:
        """Stop counting an entry that is parked, without removing it."""
        position = position_of(entry)
        if position in self._sizes:
            self._leave(*self._sizes[position][:2])
            self._sizes[position] = (0, 0, entry)

    def shrink(self, entry: ReceivedEntry, messages: int, size: int) -> None:
        """Reduce the recorded size of an entry to its remaining messages and bytes."""
        position = position_of(entry)
        if position in self._sizes:
            before, size_before, _ = self._sizes[position]
            self._sizes[position] = (messages, size, entry)
            self._leave(before - messages, size_before - size)

    def remove(self, entry: ReceivedEntry) -> None:
        """Remove an entry, unless another one has taken its position."""
        position = position_of(entry)
        found = self._sizes.get(position)
        if found is not None and found[2] is entry:
            del self._sizes[position]
            self._leave(*found[:2])

    def let_go(self, topic: str) -> list[ReceivedEntry]:
        """Remove and return all entries of a topic or partition."""
        gone = [entry for position, (_, _, entry) in self._sizes.items() if position[0] == topic]
        for entry in gone:
            self.remove(entry)
        return gone

    def _leave(self, messages: int, size: int) -> None:
        self._messages -= messages
        self._bytes -= size
        if self._messages < self._messages_max and self._bytes < HELD_BYTES_MAX:
            self.room.set()


class Reason(NamedTuple):
    """The reason of a message's failure.

    Attributes:
        exception: exception on one line.
        traceback: traceback without Magnetar's own frames.
    """

    exception: str
    traceback: str


@dataclass(slots=True)
class Acknowledgements:
    """Acknowledgements to send to the broker.

    Attributes:
        whole: entries whose messages are all finished.
        partial: partly finished entries, with ack sets of the unfinished messages.
    """

    whole: list[ReceivedEntry] = field(default_factory=list)
    partial: list[tuple[ReceivedEntry, ack_set.AckSet]] = field(default_factory=list)


class Unit:
    """A run of entries, whose messages have consecutive positions.

    Attributes:
        entries: entries in the order of arrival.
        messages: payloads of all messages, by position.
        failed_entries: entries with a failed message, each once.
        made: attributes of the outputs by position, for traced calls; None without tracing.
        reasons: why messages failed, by position; collected only on request.
    """

    __slots__ = ("_indexes", "_open", "_settled", "_starts", "entries", "failed_entries", "made", "messages", "reasons")

    def __init__(self) -> None:
        self.entries: list[ReceivedEntry] = []
        self.messages: list[bytes] = []
        self.failed_entries: list[ReceivedEntry] = []
        self.made: list[bytes] | None = None
        self.reasons: dict[int, Reason] = {}
        self._settled = 0  # number of settled positions
        self._starts: list[int] = []
        self._indexes: list[Sequence[int]] = []  # per entry, the indexes with positions
        self._open: list[set[int]] = []  # per entry, unsettled or failed indexes; filled on demand

    def __len__(self) -> int:
        return len(self.messages)

    def add(self, entry: ReceivedEntry, indexes: Sequence[int] | None = None) -> None:
        """Append an entry.

        Args:
            entry: the entry.
            indexes: indexes of messages to process, at least one, ascending; None for all.
        """
        self.entries.append(entry)
        self._starts.append(len(self.messages))
        if indexes is None:
            self._indexes.append(range(len(entry.payloads)))
            self.messages += entry.payloads
        else:
            self._indexes.append(indexes)
            self.messages += [entry.payloads[index] for index in indexes]

    def places(self) -> Iterator[tuple[ReceivedEntry, int]]:
        """Yield the entry and index of each position."""
        for entry, indexes in zip(self.entries, self._indexes, strict=True):
            yield from ((entry, index) for index in indexes)

    def parts(self) -> Iterator[tuple[int, ReceivedEntry, Sequence[int]]]:
        """Yield each entry with its first position and the indexes that have positions."""
        return zip(self._starts, self.entries, self._indexes, strict=True)

    def locate(self, position: int) -> tuple[ReceivedEntry, int]:
        """Return the entry and index of a position."""
        number = bisect_right(self._starts, position) - 1
        return self.entries[number], self._indexes[number][position - self._starts[number]]

    def cut_if(
        self, position: int, is_void: Callable[[ReceivedEntry], bool], forget: Callable[[ReceivedEntry], bool]
    ) -> Unit | None:
        """Cut the unit at a position in a void entry, and return a unit of the remaining entries; else return None.

        Args:
            position: next position; all earlier ones are done.
            is_void: returns whether an entry must no longer be processed.
            forget: the same for entries that were not started, which it also forgets.
        """
        number = bisect_right(self._starts, position) - 1
        if not is_void(self.entries[number]):
            return None
        done = position - self._starts[number]
        if done:
            self._indexes[number] = self._indexes[number][:done]
            number += 1
        rest = Unit()
        for entry, indexes in zip(self.entries[number:], self._indexes[number:], strict=True):
            if not forget(entry):
                rest.add(entry, indexes)
        del self.messages[position:], self.entries[number:], self._starts[number:], self._indexes[number:]
        del self._open[number:]
        return rest

    def failed_parts(self) -> Iterator[tuple[ReceivedEntry, set[int]]]:
        """Yield each entry with the indexes of its failed messages, after all positions are settled."""
        return zip(self.entries, self._open or [set()] * len(self.entries), strict=True)

    @property
    def is_settled(self) -> bool:
        """Whether every position is settled."""
        return self._settled == len(self.messages)

    def settle(self, begin: int, end: int, failed: Collection[int] = ()) -> Acknowledgements:
        """Record that the positions from ``begin`` to ``end`` are done, and return the acknowledgements.

        Args:
            begin: first position of the piece.
            end: position after its last.
            failed: positions of messages to be redelivered.
        """
        self._settled += end - begin
        if not failed and begin == 0 and end == len(self.messages):
            return Acknowledgements(whole=self.entries)  # common case: one piece without failures
        if not self._open:
            self._open = [set(indexes) for indexes in self._indexes]
        acks = Acknowledgements()
        first = bisect_right(self._starts, begin) - 1
        for number in range(first, bisect_left(self._starts, end)):
            start, indexes = self._starts[number], self._indexes[number]
            positions = range(max(begin, start), min(end, start + len(indexes)))
            done = {indexes[position - start] for position in positions if position not in failed}
            entry, open_indexes = self.entries[number], self._open[number]
            open_indexes -= done
            if len(done) < len(positions) and entry not in self.failed_entries[-1:]:
                self.failed_entries.append(entry)
            if not open_indexes:
                acks.whole.append(entry)
            elif done:
                acks.partial.append((entry, ack_set.from_wanted(open_indexes)))
        return acks
