"""Unsent acknowledgements, and the state of partly acknowledged entries.

Design: a broker with batch index acknowledgement accepts a set of the messages still wanted; one without (Apache
Pulsar's default) silently ignores such a set, and the protocol does not reveal which kind it is. So the client always
sends the sets, and acknowledges the whole entry when its last message is acknowledged. For a broker without the
feature, this equals the countdown in Pulsar's clients; for a broker with it, the second step changes nothing.

For the same reason, redelivered entries are compared with this state, so that messages are not delivered again only
because the broker could not record their acknowledgement.

Invariants: an entry is either partly or wholly acknowledged here, never both; `is_acknowledged` is true exactly for
positions that were acknowledged but not yet taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import pack, unpack

from .received import EntryKey, ReceivedEntry

MAX_PARTIAL_ENTRIES = 100_000
"""Maximum number of tracked partly acknowledged entries. Beyond it, the oldest is dropped. If the broker lacks batch
index acknowledgement, all messages of that entry are then redelivered after the next reconnection."""


AckIds = list[tuple[int, int, tuple[int, ...]]]
"""Ledger, entry and ack set (empty for the whole entry) of each acknowledgement."""

AckPart = tuple[bool, AckIds]
"""The content of one frame: whether it is cumulative, and the positions."""


def bits_of(words: Iterable[int]) -> int:
    """Return an ack set as an integer."""
    signed = tuple(words)
    return int.from_bytes(pack(f"<{len(signed)}q", *signed), "little")


def words_of(bits: int) -> tuple[int, ...]:
    """Return an integer as the protocol's ack set."""
    count = (bits.bit_length() + 63) // 64
    return unpack(f"<{count}q", bits.to_bytes(count * 8, "little"))


_NOTHING: EntryKey = (-1, -1)


class AckTracker:
    """Acknowledgements of one consumer.

    Attributes:
        highest: the highest position known here.
        companions: by last chunk of a message, the other chunks, which are acknowledged together with it.
    """

    __slots__ = ("_buffered", "_cumulative", "_max_partial", "_partial", "companions", "highest")

    def __init__(self, max_partial: int = MAX_PARTIAL_ENTRIES) -> None:
        self.highest = _NOTHING
        self._max_partial = max_partial
        # The unacknowledged messages of each position to send; 0 acknowledges the whole entry.
        self._buffered: dict[EntryKey, int] = {}
        self._partial: dict[EntryKey, int] = {}
        self._cumulative: EntryKey | None = None
        self.companions: dict[EntryKey, tuple[EntryKey, ...]] = {}

    @property
    def buffered(self) -> int:
        """Number of positions to send."""
        return len(self._buffered) + (self._cumulative is not None)

    @property
    def is_busy(self) -> bool:
        """Whether the tracker has any state."""
        return bool(self._buffered or self._partial) or self._cumulative is not None

    def may_know(self, entries: Sequence[ReceivedEntry]) -> bool:
        """Return whether the tracker may have state for any of these entries; the sequence must not be empty."""
        if not self.is_busy:
            return False
        highest = self.highest
        return any(entry.position <= highest for entry in entries)

    def add_entry(self, position: EntryKey) -> None:
        """Acknowledge a whole entry."""
        if position > self.highest:
            self.highest = position
        if self._partial:
            self._partial.pop(position, None)
        if self._cumulative is None or position > self._cumulative:
            self._buffered[position] = 0

    def forget(self, position: EntryKey) -> None:
        """Drop the state of an entry that is acknowledged by other means."""
        if self._partial:
            self._partial.pop(position, None)
        if self._buffered:
            self._buffered.pop(position, None)

    def add_wanted(self, position: EntryKey, wanted: int) -> bool:
        """Acknowledge all messages of an entry except those whose bits are set in ``wanted``.

        Returns: whether the whole entry is now acknowledged.
        """
        before = self._partial.pop(position, None)
        if before is not None:
            wanted &= before
        if not wanted:
            self.add_entry(position)
            return True
        if self._buffered.get(position) == 0:
            return True
        self._remember(position, wanted)
        self._buffered[position] = wanted
        return False

    def _remember(self, position: EntryKey, wanted: int) -> None:
        if position > self.highest:
            self.highest = position
        self._partial[position] = wanted
        if len(self._partial) > self._max_partial:
            del self._partial[next(iter(self._partial))]

    def add_index(self, position: EntryKey, index: int, size: int) -> bool:
        """Acknowledge one message of a batch of ``size``; see `add_wanted` for the result."""
        before = self._partial.get(position)
        if before is None:
            before = (1 << size) - 1
        return self.add_wanted(position, before & ~(1 << index))

    def add_cumulative(self, position: EntryKey) -> None:
        """Acknowledge everything up to and including an entry."""
        if position > self.highest:
            self.highest = position
        if self._cumulative is None or position > self._cumulative:
            self._cumulative = position
        for known in [known for known in self._buffered if known <= position]:
            del self._buffered[known]
        for known in [known for known in self.companions if known <= position]:
            del self.companions[known]
        for known in [known for known in self._partial if known <= position]:
            del self._partial[known]

    def is_acknowledged(self, position: EntryKey) -> bool:
        """Return whether the pending acknowledgements cover a whole entry."""
        if self._cumulative is not None and position <= self._cumulative:
            return True
        return self._buffered.get(position) == 0

    def wanted(self, position: EntryKey) -> int | None:
        """Return a bit set of the unacknowledged messages of a partly acknowledged entry; None for an unknown entry."""
        return self._partial.get(position)

    def mask(self, entry: ReceivedEntry) -> bool:
        """Remove messages that were acknowledged while the entry was queued; return whether any remain."""
        position = entry.position
        if self.is_acknowledged(position):
            return False
        wanted = self.wanted(position)
        if wanted is None:
            return True
        if entry.ack_set:
            wanted &= bits_of(entry.ack_set)
        entry.ack_set = words_of(wanted)
        return wanted != 0

    def set_wanted(self, position: EntryKey, wanted: int) -> None:
        """Merge the broker's ack set of a redelivered entry: a message remains wanted only if both sides want it."""
        before = self._partial.get(position)
        self._remember(position, wanted if before is None else before & wanted)

    def take(self) -> list[AckPart]:
        """Return the pending acknowledgements, the cumulative one first, and mark them as sent."""
        parts: list[AckPart] = []
        if self._cumulative is not None:
            parts.append((True, [(*self._cumulative, ())]))
        if self._buffered:
            buffered = self._buffered.items()
            ids = [(ledger, entry, words_of(wanted) if wanted else ()) for (ledger, entry), wanted in buffered]
            if self.companions:
                for position in [position for position, wanted in buffered if not wanted]:
                    ids += [(ledger, entry, ()) for ledger, entry in self.companions.pop(position, ())]
            parts.append((False, ids))
        self._buffered.clear()
        self._cumulative = None
        return parts

    def accompany(self, position: EntryKey, others: tuple[EntryKey, ...]) -> None:
        """Register entries to acknowledge together with another one."""
        self.companions[position] = others
        if len(self.companions) > self._max_partial:
            del self.companions[next(iter(self.companions))]

    def with_companions(self, positions: Iterable[EntryKey]) -> list[EntryKey]:
        """Return entries and their companions, in order."""
        found = set(positions)
        return sorted(found.union(*(self.companions.get(position, ()) for position in found)))

    def take_companions(self, positions: Iterable[EntryKey]) -> list[EntryKey]:
        """Return entries and their companions, in order, and forget the companions."""
        found = self.with_companions(positions)
        for position in found:
            self.companions.pop(position, None)
        return found

    def clear(self) -> None:
        """Drop all state, because the subscription was moved."""
        self.companions.clear()
        self._buffered.clear()
        self._partial.clear()
        self._cumulative = None
        self.highest = _NOTHING
