"""The entries of all ledgers that memory holds, and how many bytes they take.

Invariant: an entry that no checkpoint has moved to its ledger's file is in memory, whatever the limit; those that are
moved are a cache, out of which the oldest go first.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ..entry import ENTRY_OVERHEAD_BYTES, StoredEntry

if TYPE_CHECKING:
    from ..journal.batch import LogPort
    from .ledger import Ledger

_RUN_BYTES = 16 * 1024


class _Run:
    """Entries appended to one ledger one after the other."""

    __slots__ = ("bytes", "entries", "ledger")

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.entries = 0
        self.bytes = 0


class EntryMemory:
    """Takes entries in, counts them, and evicts the oldest ones once memory holds more than its limit.

    All that one append changes beside its log is changed here, by `append`; what takes entries back has a method each.

    Args:
        limit_bytes: to keep, with what each entry takes beside its payload.

    Attributes:
        bytes: of all entries that memory holds, their overhead included.
        unmoved_bytes: of those that no checkpoint has moved.
        unmoved_ledgers: by id, ledgers with entries that no checkpoint has taken up.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.bytes = 0
        self.unmoved_bytes = 0
        self.unmoved_ledgers: dict[int, Ledger] = {}
        self._limit_bytes = limit_bytes
        self._runs: deque[_Run] = deque()
        self._last: _Run | None = None

    def append(self, ledger: Ledger, entry: StoredEntry, head: bytes, size: int, publish_time_ms: int) -> None:
        """Append an entry to its ledger, pending; ``size`` is the length of its payload.

        Everything published takes this path, so it is written out: no method of the ledger, nor of its totals.
        """
        if not ledger.unmoved:
            self.unmoved_ledgers[ledger.id] = ledger
        held = size + ENTRY_OVERHEAD_BYTES
        ledger.held.append(entry)
        ledger.unmoved += (head, entry.payload)
        ledger.appended += 1
        ledger.cached_bytes += held
        totals = ledger.totals
        totals.bytes += size
        totals.messages += entry.messages
        if publish_time_ms < totals.oldest_ms:
            totals.oldest_ms = publish_time_ms
        if publish_time_ms > totals.newest_ms:
            totals.newest_ms = publish_time_ms
        run = self._last
        if run is None or run.ledger is not ledger or run.bytes > _RUN_BYTES:
            run = self._last = _Run(ledger)
            self._runs.append(run)
            if self.bytes > self._limit_bytes:
                self.shrink()
        run.entries += 1
        run.bytes += held
        self.bytes += held
        self.unmoved_bytes += held

    def take_up(self) -> list[Ledger]:
        """Return the ledgers with entries to be moved, which a checkpoint takes up: they are `Ledger.moving` now."""
        taken = []
        for ledger in self.unmoved_ledgers.values():
            if not ledger.is_dropped and ledger.unmoved:
                ledger.moving, ledger.unmoved = ledger.unmoved, []
                taken.append(ledger)
        self.unmoved_ledgers = {}
        return taken

    def note_moved(self, ledger: Ledger) -> int:
        """Note that what was taken up of a ledger is in its file; returns the bytes of the payloads."""
        size, entries = _payloads(ledger.moving)
        ledger.moved += entries
        ledger.moving = []
        self.unmoved_bytes -= size + entries * ENTRY_OVERHEAD_BYTES
        return size

    def put_back(self, ledger: Ledger) -> None:
        """Leave what was taken up of a ledger to the next checkpoint, as this one failed."""
        self.unmoved_ledgers[ledger.id] = ledger
        ledger.unmoved = ledger.moving + ledger.unmoved
        ledger.moving = []

    def drop_pending(self, log: LogPort) -> None:
        """Forget the entries of a log that were never confirmed, after the journal failed."""
        size = log.drop_pending()
        self.unmoved_bytes -= size
        self.bytes -= size

    def drop_ledger(self, ledger: Ledger) -> None:
        """Give back what memory holds of a deleted ledger."""
        for heads_and_payloads in (ledger.unmoved, ledger.moving):
            size, entries = _payloads(heads_and_payloads)
            self.unmoved_bytes -= size + entries * ENTRY_OVERHEAD_BYTES
        ledger.moving = []
        self.bytes -= ledger.drop_all()

    def shrink(self) -> None:
        """Evict, oldest first, until the limit holds or the oldest entries are not moved yet."""
        while self.bytes > self._limit_bytes and self._runs:
            run = self._runs[0]
            ledger = run.ledger
            # A run is longer than what is held of it if the journal failed in between: nothing is left to wait for.
            last = min(ledger.first_cached + run.entries, ledger.appended)
            if last > ledger.moved and not ledger.is_dropped:
                return
            self._runs.popleft()
            if run is self._last:
                self._last = None
            self.bytes -= ledger.evict(run.entries)


def _payloads(heads_and_payloads: list[bytes]) -> tuple[int, int]:
    """Return bytes and number of the payloads in a list of heads and payloads, alternating."""
    payloads = heads_and_payloads[1::2]
    return sum(map(len, payloads)), len(payloads)
