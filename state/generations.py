"""Generations: numbers that show a table's reader whether another writer has changed the table since the last read.

Design: a reader compares the generation with its previous one. If they are equal, the values it read then, with its own
changes applied, are still current. Three things are stored for each table: the last writer, the generation of its last
change, and the generation of the last change by another writer. So each query is a single lookup. The first number of a
process is random, so that generations are not reused after a restart.

Threads: one writer, any number of readers.
"""

from __future__ import annotations

import os
from typing import NamedTuple

TABLES_MAX = 10_000
"""Maximum number of tracked tables; beyond it, readers of untracked tables see a new generation."""
_START_BYTES = 7


class _Changes(NamedTuple):
    """The last changes of a table.

    Attributes:
        writer: the writer of the last change; empty if unknown.
        generation: generation of the last change.
        others: generation of the last change by another writer.
    """

    writer: bytes
    generation: int
    others: int


class Generations:
    """The generations of all tables, in memory only."""

    def __init__(self, tables_max: int = TABLES_MAX) -> None:
        """Create generations that start at a random number, so that those of an earlier process are not reused.

        Args:
            tables_max: maximum number of tracked tables.
        """
        self._last = 1 + int.from_bytes(os.urandom(_START_BYTES))
        self._base = self._last  # generation of all tables not in `_tables`
        self._tables: dict[str, _Changes] = {}
        self._tables_max = tables_max

    def of(self, table: str, writer: bytes) -> int:
        """Return a table's generation for a reader; call this before reading, from any thread.

        Args:
            table: the table's name.
            writer: writer id of the reader's own changes.
        """
        changes = self._tables.get(table)
        if changes is None:
            return self._base
        return changes.others if changes.writer == writer else changes.generation

    def change(self, table: str, writer: bytes) -> None:
        """Record a change; call this after it is visible to readers, and before it is confirmed to the caller.

        Args:
            table: the table's name.
            writer: writer that made the change; empty if unknown.
        """
        self._last += 1
        before = self._tables.get(table)
        if before is None:
            self._make_room()
            others = self._base
        else:
            others = before.others if before.writer == writer else before.generation
        self._tables[table] = _Changes(writer, self._last, others if writer else self._last)

    def _make_room(self) -> None:
        if len(self._tables) >= self._tables_max:
            # Raise the number first: a reader that no longer finds the table must see a different generation.
            self._base = self._last
            self._last += 1
            del self._tables[next(iter(self._tables))]
