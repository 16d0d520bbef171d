"""What a subscription has acknowledged, kept in memory or kept for good.

Design: everything up to ``mark_delete`` is acknowledged. Above it, whole entries are bits in one bitmap per ledger, so
holes cost at most a bit an entry and need no other bound; entries acknowledged in part keep their ack set. Moving the
mark walks over bits that were set once: constant time for each acknowledgement, whatever the order.

A record of an acknowledgement says what is acknowledged, never how the cursor looked before; doing it again changes
nothing. Once there is no hole, the mark alone is the whole state and the shortest record. Where nobody waits for the
receipt, the record goes along with the next group.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...wire.ack_set import AckSet, intersect, is_empty
from .journal import Done
from .position import Position
from .records import encode_acknowledged, encode_change, encode_mark, encode_partly_acknowledged

if TYPE_CHECKING:
    from .topic_log import TopicLog

Ack = tuple[Position, AckSet | None]


class MemoryCursor:
    """A cursor that ends with the process (readers, non-durable subscriptions).

    Attributes:
        name: the subscription's.
        mark_delete: everything up to here, inclusive, is acknowledged.
        properties: the subscription's properties.
    """

    def __init__(
        self, log: TopicLog, name: str, mark_delete: Position, properties: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        self.name = name
        self.mark_delete = mark_delete
        self.properties = dict(properties or {})
        self._acked: dict[int, bytearray] = {}  # ledger -> bit per entry; bits at or below the mark mean nothing
        self._acked_above = 0  # bits set above the mark
        self._partly: dict[Position, AckSet] = {}

    def acknowledge(self, acks: Iterable[Ack], done: Done | None = None) -> None:
        """Acknowledge entries one by one, or parts of them.

        Args:
            acks: positions, each with the ack set of what is still wanted, or None for the whole entry. What the log
                does not hold, or is acknowledged already, is passed over.
            done: told when the change is durable.
        """
        whole, partly = self.apply_acknowledge(acks)
        self._changed(whole, partly, has_moved=False, done=done)

    def acknowledge_up_to(self, position: Position, ack_set: AckSet | None = None, done: Done | None = None) -> None:
        """Acknowledge everything up to ``position``; with an ack set, of that entry only what the set leaves out."""
        before = self.mark_delete
        if ack_set is None or is_empty(ack_set):
            self.apply_up_to(position)
            partly: list[Position] = []
        else:
            self.apply_up_to(Position(position.ledger_id, position.entry_id - 1))
            _, partly = self.apply_acknowledge([(position, ack_set)])
        self._changed((), partly, has_moved=self.mark_delete != before, done=done)

    def apply_acknowledge(self, acks: Iterable[Ack]) -> tuple[list[Position], list[Position]]:
        """Change the state only; return which entries became acknowledged as a whole, and which in part."""
        whole: list[Position] = []
        partly: list[Position] = []
        for position, ack_set in acks:
            if ack_set is None:
                if self._set(position):
                    whole.append(position)
            elif self._is_pending(position):
                before = self._partly.get(position)
                left = intersect(before, ack_set) if before is not None else tuple(ack_set)
                if is_empty(left):
                    self._set(position)
                    whole.append(position)
                elif left != before:
                    self._partly[position] = left
                    partly.append(position)
        if whole:
            self._advance()
        return whole, partly

    def apply_up_to(self, position: Position) -> None:
        """Change the state only: everything up to ``position`` is acknowledged."""
        position = min(position, self.log.last_confirmed)
        if position <= self.mark_delete:
            return
        self.mark_delete = position
        self._acked = {ledger: bits for ledger, bits in self._acked.items() if ledger >= position.ledger_id}
        self._acked_above = sum(
            _count_from(bits, position.entry_id + 1 if ledger == position.ledger_id else 0)
            for ledger, bits in self._acked.items()
        )
        if self._partly:
            self._partly = {p: words for p, words in self._partly.items() if p > position}
        self._advance()

    def is_acknowledged(self, position: Position) -> bool:
        """Return whether the whole entry is acknowledged."""
        if position <= self.mark_delete:
            return True
        bits = self._acked.get(position.ledger_id)
        index = position.entry_id >> 3
        return bits is not None and index < len(bits) and bool(bits[index] >> (position.entry_id & 7) & 1)

    def remaining(self, position: Position) -> AckSet | None:
        """Return what is still wanted of an entry acknowledged in part; None if all of it or nothing is."""
        return self._partly.get(position)

    def next_unacknowledged(self, after: Position) -> Position:
        """Return the first position behind ``after`` that is not acknowledged; the log may not hold it yet."""
        position = self.log.next_position(max(after, self.mark_delete))
        while (bits := self._acked.get(position.ledger_id)) is not None:
            free = _first_zero(bits, position.entry_id)
            if free == position.entry_id:
                break
            position = self.log.next_position(Position(position.ledger_id, free - 1))
        return position

    @property
    def backlog_entries(self) -> int:
        """Entries of the log that are not acknowledged."""
        return self.log.entries_between(self.mark_delete, self.log.last_confirmed) - self._acked_above

    @property
    def has_holes(self) -> bool:
        """Whether anything above the mark is acknowledged, as a whole or in part."""
        return bool(self._acked_above or self._partly)

    @property
    def acknowledged_above_mark(self) -> int:
        """Entries acknowledged one by one above the mark."""
        return self._acked_above

    def acknowledged_ranges(self) -> list[tuple[Position, Position]]:
        """Return first and last position of each run of acknowledged entries above the mark, in order."""
        ranges = []
        for ledger_id in sorted(self._acked):
            bits = self._acked[ledger_id]
            entry = self.mark_delete.entry_id + 1 if ledger_id == self.mark_delete.ledger_id else 0
            while (start := _first_one(bits, entry)) is not None:
                entry = _first_zero(bits, start)
                ranges.append((Position(ledger_id, start), Position(ledger_id, entry - 1)))
        return ranges

    async def reset(self, position: Position) -> None:
        """Make ``position`` the next entry to be delivered and forget everything acknowledged behind it.

        Cancellation: the cursor has moved all the same.
        """
        self.apply_reset(self.log.before(position))

    def apply_reset(self, mark_delete: Position) -> None:
        """Move the mark, forwards or back, and forget everything above it."""
        self.mark_delete = min(mark_delete, self.log.last_confirmed)
        self._acked.clear()
        self._partly.clear()
        self._acked_above = 0

    def _changed(
        self, whole: Sequence[Position], partly: Sequence[Position], *, has_moved: bool, done: Done | None
    ) -> None:
        if done is not None:
            done(None)

    def _is_pending(self, position: Position) -> bool:
        ledger = self.log.ledgers_by_id.get(position.ledger_id)
        is_held = ledger is not None and 0 <= position.entry_id < ledger.confirmed
        return is_held and not self.is_acknowledged(position)

    def _set(self, position: Position) -> bool:
        """Acknowledge one whole entry; False if there was nothing to do."""
        mark = self.mark_delete
        if position <= mark:
            return False
        ledger_id, entry_id = position
        ledger = self.log.ledgers_by_id.get(ledger_id)
        if ledger is None or not 0 <= entry_id < ledger.confirmed:
            return False
        if self._partly:
            self._partly.pop(position, None)
        bits = self._acked.get(ledger_id)
        if bits is None:
            if entry_id == mark.entry_id + 1 and ledger_id == mark.ledger_id:
                self.mark_delete = position
                return True
            bits = self._acked[ledger_id] = bytearray()
        index, bit = entry_id >> 3, 1 << (entry_id & 7)
        if index >= len(bits):
            bits.extend(bytes(index + 1 - len(bits)))
        elif bits[index] & bit:
            return False
        bits[index] |= bit
        self._acked_above += 1
        return True

    def _advance(self) -> None:
        """Move the mark over the entries above it that are acknowledged."""
        while self._acked_above:
            after = self.log.next_position(self.mark_delete)
            bits = self._acked.get(after.ledger_id)
            free = _first_zero(bits, after.entry_id) if bits is not None else after.entry_id
            if free == after.entry_id:
                return
            self._acked_above -= free - after.entry_id
            self._leave_ledger(after.ledger_id)
            self.mark_delete = Position(after.ledger_id, free - 1)
        self._acked.clear()

    def _leave_ledger(self, new_ledger_id: int) -> None:
        if new_ledger_id != self.mark_delete.ledger_id:
            self._acked.pop(self.mark_delete.ledger_id, None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self.mark_delete} and {self._acked_above} above>"


class Cursor(MemoryCursor):
    """A durable cursor: every change goes through the journal.

    A change is seen by this process at once; ``done`` tells when it is on the disk. If the disk refuses, ``done`` gets
    the error and the change may or may not come to be durable: the entries may be delivered again after a restart.

    Attributes:
        id: names the cursor in journal records.
        numbers: what its owner wants to know about everything up to the mark; kept with it.
    """

    def __init__(self, log: TopicLog, cursor_id: int, name: str, mark_delete: Position) -> None:
        super().__init__(log, name, mark_delete)
        self.id = cursor_id
        self.numbers: dict[str, int] = {}

    async def reset(self, position: Position) -> None:
        """See `MemoryCursor.reset`; returns when the change is durable.

        Cancellation: the cursor has moved all the same.

        Raises:
            StorageError: the disk refused. Where it had refused before, nothing was changed; else the cursor has moved
                and may be where it was after a restart.
        """
        await self.log.core.wait(lambda done: self.reset_with(position, done))

    def reset_with(self, position: Position, done: Done) -> None:
        """Reset and tell ``done`` when it is durable."""
        if self.log.core.refuses(done):
            return
        self.apply_reset(self.log.before(position))
        self.log.has_changed()
        self.log.core.record(
            done, encode_change({"do": "reset_cursor", "cursor": self.id, "mark": list(self.mark_delete)})
        )

    def _changed(
        self, whole: Sequence[Position], partly: Sequence[Position], *, has_moved: bool, done: Done | None
    ) -> None:
        parts: list[bytes] = []
        if has_moved or (whole and not self._acked_above):
            parts.append(encode_mark(self.id, self.mark_delete))
        if whole and self._acked_above:
            parts.append(encode_acknowledged(self.id, whole))
        for position in partly:
            parts.append(encode_partly_acknowledged(self.id, position, self._partly[position]))
        if parts:
            self.log.has_changed()
        if parts or done is not None:
            self.log.core.record(done, *parts)

    def note(
        self, position: Position, numbers: Mapping[str, int], forget: Sequence[str] = (), done: Done | None = None
    ) -> None:
        """Acknowledge everything up to ``position`` and change the numbers, both or none of it.

        Args:
            position: new mark.
            numbers: those that are new or different.
            forget: names of numbers that are not needed any more.
            done: told when the change is durable.
        """
        change = {"do": "note", "cursor": self.id, "mark": list(position), "numbers": dict(numbers)}
        if forget:
            change["forget"] = list(forget)
        record = encode_change(change)
        self.apply_note(position, numbers, forget)
        self.log.has_changed()
        self.log.core.record(done, record)

    def apply_note(self, position: Position, numbers: Mapping[str, int], forget: Iterable[str]) -> None:
        """Change the state only."""
        self.apply_up_to(position)
        self.numbers.update(numbers)
        for name in forget:
            self.numbers.pop(name, None)

    def snapshot(self) -> dict[str, Any]:
        """Return the state for the catalogue."""
        numbers = {"numbers": self.numbers} if self.numbers else {}
        return numbers | {
            "id": self.id,
            "name": self.name,
            "mark": list(self.mark_delete),
            "properties": self.properties,
            "acked": {
                str(ledger): base64.b64encode(zlib.compress(bits, 1)).decode() for ledger, bits in self._acked.items()
            },
            "partly": [[*position, list(words)] for position, words in self._partly.items()],
        }

    @classmethod
    def from_snapshot(cls, log: TopicLog, state: dict[str, Any]) -> Cursor:
        """Return the cursor that `snapshot` described."""
        cursor = cls(log, state["id"], state["name"], Position(*state["mark"]))
        cursor.properties = dict(state["properties"])
        cursor.numbers = dict(state.get("numbers", {}))
        for ledger, packed in state["acked"].items():
            cursor._acked[int(ledger)] = bytearray(zlib.decompress(base64.b64decode(packed)))
        mark = cursor.mark_delete
        cursor._acked_above = sum(
            _count_from(bits, mark.entry_id + 1 if ledger == mark.ledger_id else 0)
            for ledger, bits in cursor._acked.items()
            if ledger >= mark.ledger_id
        )
        for ledger_id, entry_id, words in state["partly"]:
            cursor._partly[Position(ledger_id, entry_id)] = tuple(words)
        return cursor


def _first_zero(bits: bytearray, start: int) -> int:
    """Return the first index from ``start`` on whose bit is 0; beyond the end all are."""
    index = start >> 3
    if index >= len(bits):
        return start
    byte = bits[index] | ((1 << (start & 7)) - 1)
    while byte == 0xFF:
        index += 1
        if index == len(bits):
            return index << 3
        byte = bits[index]
    return (index << 3) + ((~byte & (byte + 1)).bit_length() - 1)


def _first_one(bits: bytearray, start: int) -> int | None:
    """Return the first index from ``start`` on whose bit is 1, or None."""
    index = start >> 3
    if index >= len(bits):
        return None
    byte = bits[index] & ~((1 << (start & 7)) - 1)
    while not byte:
        index += 1
        if index == len(bits):
            return None
        byte = bits[index]
    return (index << 3) + ((byte & -byte).bit_length() - 1)


def _count_from(bits: bytearray, start: int) -> int:
    """Return how many bits from ``start`` on are 1."""
    return (int.from_bytes(bits, "little") >> max(start, 0)).bit_count()
