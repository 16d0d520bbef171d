"""Cursors: the acknowledgements of a subscription, in memory; for durable ones also in the journal and catalogue.

Design: everything up to ``mark_delete`` is acknowledged. Above it, whole entries are bits in one bitmap per ledger, so
holes cost at most one bit per entry and need no other bound; partly acknowledged entries keep their ack set, cut to the
number of messages possible. Moving the mark passes over each bit once: constant time per acknowledgement, in any order.

A position that the log never held changes nothing; one whose ledger was dropped since counts as acknowledged. So a
record of a durable cursor only contains numbers that a ledger has assigned.

Each change of a durable cursor goes into the journal, its whole state into the catalogue. A record says what is
acknowledged, never the previous state, so it is idempotent. Without holes, the mark alone is the whole state and the
shortest record. Without a waiter for the receipt, the record is written with the next group.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ....tasks import called_back
from ....wire.ack_set import AckSet, cut, intersect
from ....wire.position import Position
from ..journal.format import encode_acknowledged, encode_change, encode_mark, encode_partly_acknowledged
from ..ports import AckedLog, Done, LogPort
from . import bitmap
from .image import Image, acked_in, encode_cursor, encode_ledger, parts_in
from .partial_acks import size_of

logger = logging.getLogger(__name__)
_NONE: list[Position] = []  # never changed: saves each acknowledgement a list

Ack = tuple[Position, Sequence[int] | None]
Applied = tuple[list[Position], list[Position], list[Position]]
"""The effect of an acknowledgement: fully acknowledged entries, entries of which more but not all is acknowledged now,
and positions that the log never held. A bare tuple because one is made for each acknowledgement.
"""


class MemoryCursor:
    """A cursor that ends with the process (readers, non-durable subscriptions).

    Attributes:
        name: the subscription's name.
        mark_delete: everything up to here, inclusive, is acknowledged.
        properties: the subscription's properties.
        numbers: its owner's data about everything up to the mark.
        is_durable: whether it outlives the process and retains entries.
        partial_bytes: approximate memory of the ack sets; maintained by `PartialAcks`.
    """

    is_durable = False

    def __init__(
        self, log: AckedLog, name: str, mark_delete: Position, properties: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        self.name = name
        self.mark_delete = mark_delete
        self.properties = dict(properties or {})
        self.numbers: dict[str, int] = {}
        self._acked: dict[int, bytearray] = {}  # ledger -> bit per entry; bits at or below the mark are meaningless
        self._acked_above = 0  # bits set above the mark
        self._partly: dict[int, dict[int, AckSet]] = {}  # ledger -> entry -> messages still wanted
        self._acked_images: dict[int, Image] = {}  # those that are still current
        self._partly_images: dict[int, Image] = {}
        self.partial_bytes = 0
        self._image: Image | None = None
        self._unknown = 0
        self._refused = 0
        if not self.is_durable:
            log.watch(self)

    def acknowledge(self, acks: Iterable[Ack], done: Done | None = None) -> None:
        """Acknowledge individual entries, or parts of them.

        Args:
            acks: positions, each with the ack set of the messages still wanted, or None for the whole entry. Entries
                that are already acknowledged, or were dropped with their ledger, are skipped.
            done: called when the change is durable; as in Apache Pulsar, positions that never existed are not an error.
                If memory for further ack sets runs out, the affected entries stay unacknowledged, which is an error.
        """
        if self.log.core.partial_acks.is_full:
            acks, done = self._without_new_sets(acks, done)
        whole, partly, unknown = self.apply_acknowledge(acks)
        if unknown:
            self._note_unknown(unknown)
        self._changed(whole, partly, has_moved=False, done=done)

    def acknowledge_up_to(
        self, position: Position, ack_set: Sequence[int] | None = None, done: Done | None = None
    ) -> None:
        """Acknowledge everything up to ``position``; of that entry only the messages missing in ``ack_set``, if given.

        If the log never held that position nothing changes, which is not an error.
        """
        left = None
        if ack_set is not None and self.log.holds(position):
            left = cut(ack_set, self.log.messages_at_most(position))
            if left and self.log.core.partial_acks.is_full:
                acks, done = self._without_new_sets([(position, left)], done)
                if not acks:
                    position, left = Position(position.ledger_id, position.entry_id - 1), None
        mark = self.log.mark_up_to(Position(position.ledger_id, position.entry_id - 1) if left else position)
        if mark is None:
            self._note_unknown([position])
            self._changed((), (), has_moved=False, done=done)
            return
        before = self.mark_delete
        self.apply_up_to(mark)
        partly = self.apply_acknowledge([(position, left)])[1] if left else ()
        self._changed((), partly, has_moved=self.mark_delete != before, done=done)

    def _without_new_sets(self, acks: Iterable[Ack], done: Done | None) -> tuple[list[Ack], Done | None]:
        """Return the acknowledgements that need no new ack set; if others are refused, report that to ``done``."""
        partial_acks = self.log.core.partial_acks
        partial_acks.recount()
        acks = list(acks)
        if not partial_acks.is_full:
            return acks, done
        kept = [(position, words) for position, words in acks if words is None or self.remaining(position) is not None]
        if len(kept) < len(acks):
            refusal = partial_acks.refusal()
            before, self._refused = self._refused, self._refused + len(acks) - len(kept)
            if self._refused.bit_length() > before.bit_length():  # at growing intervals
                logger.warning("%d acknowledgements on subscription %s refused: %s", self._refused, self.name, refusal)
            if done is not None:
                done(refusal)
            done = None
        return kept, done

    def apply_acknowledge(self, acks: Iterable[Ack]) -> Applied:
        """Change only the state in memory, and return the effect."""
        whole: list[Position] = []
        partly: list[Position] = []
        unknown = _NONE
        for position, ack_set in acks:
            left = None
            if ack_set is not None and self.log.holds(position) and not self.is_acknowledged(position):
                left = cut(ack_set, self.log.messages_at_most(position))
                before = self.remaining(position)
                if before is not None:
                    left = intersect(before, left)
                if left:
                    if left != before:
                        self._partly_images.pop(position.ledger_id, None)
                        self._partly.setdefault(position.ledger_id, {})[position.entry_id] = left
                        if before is None or len(before) != len(left):
                            self._resize(size_of(len(left)) - size_of(len(before or ())))
                        partly.append(position)
                    continue
            if self._set(position):
                whole.append(position)
            elif position > self.mark_delete and not self.log.ever_held(position):
                if unknown is _NONE:
                    unknown = []
                unknown.append(position)
        if whole:
            self._advance()
        if whole or partly:
            self._image = None
        return whole, partly, unknown

    def apply_up_to(self, position: Position) -> None:
        """Change only the state in memory: everything up to ``position`` is acknowledged."""
        position = min(position, self.log.last_confirmed)
        old = self.mark_delete
        if position <= old:
            return
        ledger_id, entry_id = position
        if ledger_id != old.ledger_id:
            for passed in [ledger for ledger in self._acked.keys() | self._partly.keys() if ledger < ledger_id]:
                self.forget_ledger(passed)
        bits = self._acked.get(ledger_id)
        if bits is not None:
            start = old.entry_id + 1 if ledger_id == old.ledger_id else 0
            self._acked_above -= bitmap.count(bits, start, entry_id + 1)
        parts = self._partly.get(ledger_id)
        if parts is not None:
            self._keep_parts(ledger_id, {entry: words for entry, words in parts.items() if entry > entry_id})
        self.mark_delete = position
        self._image = None
        self._advance()

    def is_acknowledged(self, position: Position) -> bool:
        """Return whether the whole entry is acknowledged."""
        if position <= self.mark_delete:
            return True
        bits = self._acked.get(position.ledger_id)
        return bits is not None and bitmap.is_one(bits, position.entry_id)

    def remaining(self, position: Position) -> AckSet | None:
        """Return the messages still wanted of a partly acknowledged entry; None for any other entry."""
        parts = self._partly.get(position.ledger_id)
        return parts.get(position.entry_id) if parts is not None else None

    def next_unacknowledged(self, after: Position) -> Position:
        """Return the first unacknowledged position after ``after``; the log may not hold it yet."""
        position = self.log.next_position(max(after, self.mark_delete))
        while (bits := self._acked.get(position.ledger_id)) is not None:
            free = bitmap.first_zero(bits, position.entry_id)
            if free == position.entry_id:
                break
            position = self.log.next_position(Position(position.ledger_id, free - 1))
        return position

    @property
    def backlog_entries(self) -> int:
        """Number of unacknowledged entries in the log."""
        return self.log.entries_between(self.mark_delete, self.log.last_confirmed) - self._acked_above

    @property
    def has_holes(self) -> bool:
        """Whether anything above the mark is acknowledged, fully or partly."""
        return bool(self._acked_above or self._partly)

    def acknowledged_ranges(self) -> list[tuple[Position, Position]]:
        """Return first and last position of each run of acknowledged entries above the mark, in order."""
        ranges = []
        for ledger_id in sorted(self._acked):
            bits = self._acked[ledger_id]
            entry = self._first_above(ledger_id)
            while (start := bitmap.first_one(bits, entry)) is not None:
                entry = bitmap.first_zero(bits, start)
                ranges.append((Position(ledger_id, start), Position(ledger_id, entry - 1)))
        return ranges

    @property
    def acknowledged_range_count(self) -> int:
        """Number of ranges that `acknowledged_ranges` would return, without building them."""
        return sum(bitmap.count_runs(bits, self._first_above(ledger_id)) for ledger_id, bits in self._acked.items())

    def _first_above(self, ledger_id: int) -> int:
        return self.mark_delete.entry_id + 1 if ledger_id == self.mark_delete.ledger_id else 0

    async def reset(self, position: Position) -> None:
        """Make ``position`` the next entry to be delivered and drop all acknowledgements after it.

        Cancellation: the cursor has moved all the same.
        """
        self.apply_reset(self.log.before(position))

    def apply_reset(self, mark_delete: Position) -> None:
        """Move the mark, forwards or back, and drop all acknowledgements above it."""
        self.mark_delete = min(mark_delete, self.log.last_confirmed)
        for held in (self._acked, self._partly, self._acked_images, self._partly_images):
            held.clear()
        self._resize(-self.partial_bytes)
        self._acked_above = 0
        self._image = None

    def note(
        self,
        position: Position,
        numbers: Mapping[str, int],
        forget: Sequence[str] = (),
        done: Done | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Acknowledge everything up to ``position`` and change numbers and properties, atomically.

        Args:
            position: new mark.
            numbers: those that are new or different.
            forget: names of numbers to remove.
            done: called when the change is durable; at once for a cursor in memory.
            properties: replace those of the subscription; None leaves them as they are.
        """
        self.apply_note(position, numbers, forget, properties)
        if done is not None:
            done(None)

    def apply_note(
        self,
        position: Position,
        numbers: Mapping[str, int],
        forget: Iterable[str],
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Change only the state in memory."""
        if properties is not None:
            self.properties = dict(properties)
        self.apply_up_to(position)
        self.numbers.update(numbers)
        for name in forget:
            self.numbers.pop(name, None)
        self._image = None

    def _changed(
        self, whole: Sequence[Position], partly: Sequence[Position], *, has_moved: bool, done: Done | None
    ) -> None:
        if done is not None:
            done(None)

    def _note_unknown(self, positions: Sequence[Position]) -> None:
        """Log ignored positions, at growing intervals: a peer may send thousands of them."""
        before, self._unknown = self._unknown, self._unknown + len(positions)
        if self._unknown.bit_length() > before.bit_length():
            first, last = positions[0], self.log.last_confirmed
            logger.warning(
                "%d acknowledgements on subscription %s named positions that %s never had and were ignored; the latest"
                " is %d:%d, the last entry %d:%d", self._unknown, self.name, self.log.name, *first, *last,
            )  # fmt: skip

    def _resize(self, delta_bytes: int) -> None:
        self.log.core.partial_acks.changed(self, delta_bytes)

    def _keep_parts(self, ledger_id: int, parts: dict[int, AckSet]) -> None:
        self._partly_images.pop(ledger_id, None)
        before = self._partly.get(ledger_id)
        if before:
            self._resize(-sum(size_of(len(words)) for entry, words in before.items() if entry not in parts))
        if parts:
            self._partly[ledger_id] = parts
        else:
            self._partly.pop(ledger_id, None)

    def _drop_part(self, position: Position) -> None:
        parts = self._partly.get(position.ledger_id)
        words = parts.pop(position.entry_id, None) if parts is not None else None
        if parts is None or words is None:
            return
        self._resize(-size_of(len(words)))
        self._partly_images.pop(position.ledger_id, None)
        if not parts:
            del self._partly[position.ledger_id]

    def forget_ledger(self, ledger_id: int) -> None:
        """Drop the acknowledgements of a ledger that the mark has passed or the log has dropped."""
        bits = self._acked.pop(ledger_id, None)
        if bits is not None:
            self._acked_images.pop(ledger_id, None)
            if ledger_id >= self.mark_delete.ledger_id:
                self._acked_above -= bitmap.count(bits, self._first_above(ledger_id))
        self._keep_parts(ledger_id, {})

    def _set(self, position: Position) -> bool:
        """Acknowledge one whole entry; returns False if nothing changed."""
        mark = self.mark_delete
        if position <= mark:
            return False
        ledger_id, entry_id = position
        ledger = self.log.ledgers_by_id.get(ledger_id)
        if ledger is None or not 0 <= entry_id < ledger.confirmed:
            return False
        if self._partly:
            self._drop_part(position)
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
        self._acked_images.pop(ledger_id, None)
        self._acked_above += 1
        return True

    def _advance(self) -> None:
        """Move the mark past acknowledged entries above it."""
        while self._acked_above:
            after = self.log.next_position(self.mark_delete)
            bits = self._acked.get(after.ledger_id)
            free = bitmap.first_zero(bits, after.entry_id) if bits is not None else after.entry_id
            if free == after.entry_id:
                return
            self._acked_above -= free - after.entry_id
            if after.ledger_id != self.mark_delete.ledger_id:
                self._acked.pop(self.mark_delete.ledger_id, None)
                self._acked_images.pop(self.mark_delete.ledger_id, None)
            self.mark_delete = Position(after.ledger_id, free - 1)
        self._acked.clear()
        self._acked_images.clear()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self.mark_delete} and {self._acked_above} above>"


class Cursor(MemoryCursor):
    """A durable cursor: every change goes through the journal.

    A change takes effect in this process at once; ``done`` is called when it is on disk. If the disk fails, ``done``
    gets the error and the change may or may not become durable: entries may be redelivered after a restart.

    Attributes:
        id: identifies the cursor in journal records.
    """

    is_durable = True
    log: LogPort

    def __init__(self, log: LogPort, cursor_id: int, name: str, mark_delete: Position) -> None:
        super().__init__(log, name, mark_delete)
        self.id = cursor_id

    async def reset(self, position: Position) -> None:
        """Reset as `MemoryCursor.reset`; returns when the change is durable.

        Cancellation: the cursor has moved all the same.

        Raises:
            StorageError: the disk failed. If changes were refused already, nothing changed; otherwise the cursor has
                moved and may be back at its old position after a restart.
        """
        await called_back(lambda done: self.reset_with(position, done))

    def reset_with(self, position: Position, done: Done) -> None:
        """Reset, and call ``done`` when that is durable."""
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
            words = self.remaining(position)
            if words is not None:  # else a later position of the same command acknowledged the rest of the entry
                parts.append(encode_partly_acknowledged(self.id, position, words))
        if parts:
            self.log.has_changed()
        if parts or done is not None:
            self.log.core.record(done, *parts)

    def note(
        self,
        position: Position,
        numbers: Mapping[str, int],
        forget: Sequence[str] = (),
        done: Done | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Note as `MemoryCursor.note`; returns before the change is durable."""
        change = {"do": "note", "cursor": self.id, "mark": list(position), "numbers": dict(numbers)}
        if forget:
            change["forget"] = list(forget)
        if properties is not None:
            change["properties"] = dict(properties)
        record = encode_change(change)
        self.apply_note(position, numbers, forget, properties)
        self.log.has_changed()
        self.log.core.record(done, record)

    def snapshot(self) -> Image:
        """Return the state for the catalogue; fast, because unchanged parts are reused."""
        if self._image is None:
            head = {"id": self.id, "name": self.name, "mark": list(self.mark_delete), "properties": self.properties}
            if self.numbers:
                head["numbers"] = dict(self.numbers)
            for ledger_id in self._acked.keys() - self._acked_images.keys():
                self._acked_images[ledger_id] = Image(partial(encode_ledger, ledger_id, bytes(self._acked[ledger_id])))
            for ledger_id in self._partly.keys() - self._partly_images.keys():
                self._partly_images[ledger_id] = Image(
                    partial(encode_ledger, ledger_id, self._partly[ledger_id].copy())
                )
            acked, parts = tuple(self._acked_images.values()), tuple(self._partly_images.values())
            self._image = Image(partial(encode_cursor, head, acked, parts))
        return self._image

    @classmethod
    def from_snapshot(cls, log: LogPort, state: dict[str, Any]) -> Cursor:
        """Return the cursor described by the catalogue."""
        cursor = cls(log, state["id"], state["name"], Position(*state["mark"]))
        cursor.properties = dict(state["properties"])
        cursor.numbers = dict(state.get("numbers", {}))
        cursor._acked = dict(acked_in(state))
        cursor._acked_above = sum(
            bitmap.count(bits, cursor._first_above(ledger_id))
            for ledger_id, bits in cursor._acked.items()
            if ledger_id >= cursor.mark_delete.ledger_id
        )
        cursor._partly = dict(parts_in(state))
        cursor._resize(sum(size_of(len(words)) for parts in cursor._partly.values() for words in parts.values()))
        return cursor
