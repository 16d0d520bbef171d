"""Records on their way to the disk, and who is told when they are there."""

from __future__ import annotations

from dataclasses import dataclass

from ....wire.position import Position
from ..ports import Done, EntryDone, LedgerPort

EntryWaiter = tuple[LedgerPort, Position, EntryDone]
"""The ledger and position of an entry, and who is told. A bare tuple because it is made for each entry."""


@dataclass(frozen=True, slots=True)
class JournalEnd:
    """Where the journal stands: what a checkpoint records as the place to replay from.

    Attributes:
        sequence: number of the file.
        offset: where the next group goes in it, or would go if it did not go into the next file.
        group: least number of the next group.
        file_id: the file's id; None if that file is yet to be begun.
    """

    sequence: int
    offset: int
    group: int
    file_id: int | None


class Batch:
    """Records that will be in one group, and whom to tell; the loop lane's own until it hands it to the writer."""

    __slots__ = ("bytes", "end", "ends_group", "parts", "waiters")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.bytes = 0
        self.waiters: list[EntryWaiter | Done] = []
        self.ends_group = False
        self.end: JournalEnd | None = None
