"""Cursors: the acknowledgements of a subscription, in memory and, if durable, in the journal and catalogue.

Design: everything up to ``mark_delete`` is acknowledged. Above it, each ledger has a bitmap of acknowledged entries, so
holes take at most one bit per entry and need no other limit. Partly acknowledged entries keep an ack set, truncated to
the possible number of messages. Moving the mark visits each bit once, so an acknowledgement takes constant time on
average, in any order.

Acknowledging a position that the log never contained has no effect, and positions in dropped ledgers count as
acknowledged. So journal records of a cursor only contain positions that a ledger has assigned.

Each change of a durable cursor is written to the journal, and its complete state to the catalogue. A record states
which entries are acknowledged, independently of the previous state, so records are idempotent. Without holes, the mark
is the complete state and the shortest record. If no caller waits for the receipt, the record is written with the next
group.
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
_NONE: list[Position] = []  # never modified; avoids creating a list for each acknowledgement

Ack = tuple[Position, Sequence[int] | None]
Applied = tuple[list[Position], list[Position], list[Position]]
"""The effect of an acknowledgement: fully acknowledged entries, entries with further but not all messages
acknowledged, and positions that the log never contained. A plain tuple, because one is created per acknowledgement.
"""


class MemoryCursor:
    """A cursor that is only kept in memory, for readers and non-durable subscriptions.

    Attributes:
        name: subscription name.
        mark_delete: position up to which, inclusive, everything is acknowledged.
        properties: subscription properties.
        numbers: integers that the cursor's owner stores with the mark, by name.
        is_durable: whether the cursor outlives its consumers and retains entries.
        partial_bytes: approximate memory of the ack sets, maintained by `PartialAcks`.
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
        self._acked: dict[int, bytearray] = {}  # ledger -> bit per entry; bits up to the mark are meaningless
        self._acked_above = 0  # bits set above the mark
        self._partly: dict[int, dict[int, AckSet]] = {}  # ledger -> entry -> unacknowledged messages
        self._acked_images: dict[int, Image] = {}  # only images that are up to date
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
            acks: positions, each with the ack set of the unacknowledged messages, or None for the whole entry. Entries
                that are already acknowledged or were dropped with their ledger are ignored.
            done: called when the change is durable. As in Apache Pulsar, positions that never existed are not an error.
                If the memory limit prevents new ack sets, the affected entries stay unacknowledged and ``done``
                receives an error.
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
        """Acknowledge everything up to ``position``; of that entry, messages in ``ack_set`` remain unacknowledged.

        A position that the log never contained is ignored, without an error.
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
        """Return the acknowledgements that need no new ack set; ``done`` receives an error if others are rejected."""
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
                logger.warning("rejected %d acknowledgements on subscription %s: %s", self._refused, self.name, refusal)
            if done is not None:
                done(refusal)
            done = None
        return kept, done

    def apply_acknowledge(self, acks: Iterable[Ack]) -> Applied:
        """Apply acknowledgements to the state in memory only, and return their effect."""
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
        """Acknowledge everything up to ``position`` in memory only."""
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
        """Return the unacknowledged messages of a partly acknowledged entry, or None for any other entry."""
        parts = self._partly.get(position.ledger_id)
        return parts.get(position.entry_id) if parts is not None else None

    def next_unacknowledged(self, after: Position) -> Position:
        """Return the first unacknowledged position after ``after``, which may not exist yet."""
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
        """Whether an entry above the mark is fully or partly acknowledged."""
        return bool(self._acked_above or self._partly)

    def acknowledged_ranges(self) -> list[tuple[Position, Position]]:
        """Return the first and last position of each run of acknowledged entries above the mark, in order."""
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
        """Number of ranges in `acknowledged_ranges`, computed without creating them."""
        return sum(bitmap.count_runs(bits, self._first_above(ledger_id)) for ledger_id, bits in self._acked.items())

    def _first_above(self, ledger_id: int) -> int:
        return self.mark_delete.entry_id + 1 if ledger_id == self.mark_delete.ledger_id else 0

    async def reset(self, position: Position) -> None:
        """Make ``position`` the next entry to be delivered, and drop all acknowledgements from there on.

        Cancellation: the cursor moves anyway.
        """
        self.apply_reset(self.log.before(position))

    def apply_reset(self, mark_delete: Position) -> None:
        """Move the mark forwards or backwards in memory only, and drop all acknowledgements above it."""
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
        """Atomically acknowledge everything up to ``position`` and change numbers and properties.

        Args:
            position: new mark.
            numbers: new or changed numbers.
            forget: names of numbers to remove.
            done: called when the change is durable; called immediately if the cursor is only kept in memory.
            properties: new subscription properties, or None to keep the current ones.
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
        """Apply `note` to the state in memory only."""
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
        """Log ignored positions at growing intervals, since a peer may send thousands of them."""
        before, self._unknown = self._unknown, self._unknown + len(positions)
        if self._unknown.bit_length() > before.bit_length():
            first, last = positions[0], self.log.last_confirmed
            logger.warning(
                "ignored %d acknowledgements on subscription %s of entries that %s never contained, most recently %d:%d"
                " (last entry: %d:%d)", self._unknown, self.name, self.log.name, *first, *last,
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
        """Acknowledge a whole entry and return whether that changed anything."""
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
    """A durable cursor, whose changes are written to the journal.

    Changes take effect in memory immediately, and ``done`` is called when they are on disk. If the disk fails, ``done``
    receives the error, and the change may or may not become durable, so entries may be redelivered after a restart.

    Attributes:
        id: id of the cursor in journal records.
    """

    is_durable = True
    log: LogPort

    def __init__(self, log: LogPort, cursor_id: int, name: str, mark_delete: Position) -> None:
        super().__init__(log, name, mark_delete)
        self.id = cursor_id

    async def reset(self, position: Position) -> None:
        """Durably make ``position`` the next entry to be delivered, and drop all acknowledgements from there on.

        Cancellation: the cursor moves anyway.

        Raises:
            StorageError: the disk failed. If changes were already being rejected, nothing has changed. Otherwise the
                cursor has moved, but may return to its old position after a restart.
        """
        await called_back(lambda done: self.reset_with(position, done))

    def reset_with(self, position: Position, done: Done) -> None:
        """Same as `reset`, but call ``done`` when the change is durable."""
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
            if words is not None:  # otherwise, a later position in the same command acknowledged the rest of the entry
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
        """Same as `MemoryCursor.note`, but return before the change is durable."""
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
        """Return the state to be stored in the catalogue; unchanged parts are reused."""
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
        """Create a cursor from its state in the catalogue."""
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
