"""The cache of entries read ahead from ledger files, for consumers with a backlog.

The cache contains one run of consecutive entries per ledger, and evicts the least recently used run first.
"""

from __future__ import annotations

from collections import OrderedDict

from ..entry import ENTRY_OVERHEAD_BYTES, StoredEntry


class ReadCache:
    """A bounded cache of entries; must be used on the loop lane.

    Args:
        limit_bytes: memory limit of all runs, including the overhead of each entry.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._runs: OrderedDict[int, tuple[int, list[StoredEntry], int]] = OrderedDict()
        self.bytes = 0

    def put(self, entries: list[StoredEntry]) -> None:
        """Cache consecutive entries of a ledger, replacing the ledger's previous run."""
        ledger_id = entries[0].position.ledger_id
        self.forget(ledger_id)
        size = sum(len(entry.payload) + ENTRY_OVERHEAD_BYTES for entry in entries)
        self._runs[ledger_id] = (entries[0].position.entry_id, entries, size)
        self.bytes += size
        while self.bytes > self._limit_bytes:
            _, (_, _, dropped) = self._runs.popitem(last=False)
            self.bytes -= dropped

    def get(self, ledger_id: int, entry_id: int, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return cached entries from ``entry_id`` on, within the limits, or an empty list."""
        run = self._runs.get(ledger_id)
        if run is None or not 0 <= entry_id - run[0] < len(run[1]):
            return []
        self._runs.move_to_end(ledger_id)
        start = entry_id - run[0]
        return within(run[1][start : start + max_entries], max_bytes)

    def forget(self, ledger_id: int) -> None:
        """Evict the run of a ledger."""
        run = self._runs.pop(ledger_id, None)
        if run is not None:
            self.bytes -= run[2]


def within(entries: list[StoredEntry], max_bytes: int) -> list[StoredEntry]:
    """Return the first entries that fit into ``max_bytes``, but at least one unless the list is empty."""
    total = 0
    for count, entry in enumerate(entries):
        total += len(entry.payload)
        if total > max_bytes and count:
            return entries[:count]
    return entries
