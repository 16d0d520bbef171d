"""A durable cursor: each change of it goes into the journal, its whole state into the catalogue.

A record of an acknowledgement says what is acknowledged, never how the cursor looked before; doing it again changes
nothing. Once there is no hole, the mark alone is the whole state and the shortest record. Where nobody waits for the
receipt, the record goes along with the next group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ....wire.position import Position
from ..journal.format import encode_acknowledged, encode_change, encode_mark, encode_partly_acknowledged
from ..ports import Done, LogPort
from . import bitmap
from .image import Image, acked_in, encode_cursor, encode_ledger, parts_in
from .memory import Ack, Applied, MemoryCursor


class Cursor(MemoryCursor):
    """A durable cursor: every change goes through the journal.

    A change is seen by this process at once; ``done`` tells when it is on the disk. If the disk refuses, ``done`` gets
    the error and the change may or may not come to be durable: the entries may be delivered again after a restart.

    Attributes:
        id: names the cursor in journal records.
        numbers: what its owner wants to know about everything up to the mark; kept with it.
    """

    is_durable = True

    def __init__(self, log: LogPort, cursor_id: int, name: str, mark_delete: Position) -> None:
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
            words = self.remaining(position)
            if words is not None:  # else a later position of the same command acknowledged the rest of the entry
                parts.append(encode_partly_acknowledged(self.id, position, words))
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
        self._image = None

    def snapshot(self) -> Image:
        """Return the state for the catalogue; takes little time, for what did not change is not looked at."""
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
        """Return the cursor that the catalogue describes."""
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
        return cursor


__all__ = ["Ack", "Applied", "Cursor", "MemoryCursor"]
