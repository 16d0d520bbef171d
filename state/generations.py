"""Generations: tell a table's reader whether another writer has changed the table since its last read.

Design: a generation is a number that a reader compares with its previous one; if equal, the values it read then, with
its own changes applied, are still current. For each table the last writer, the generation of its last change, and that
of the last change by another writer are stored, so each query is a single lookup. The first number of a process is
random, so that generations from before a restart are not found again.

Threads: one writer, any number of readers.
"""

from __future__ import annotations

import os
from typing import NamedTuple

TABLES_MAX = 10_000
"""Limit of tracked tables; beyond it, readers of untracked tables see a new generation."""
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
        """Start at a random number, so that generations of an earlier process are not reused.

        Args:
            tables_max: limit of tracked tables.
        """
        self._last = 1 + int.from_bytes(os.urandom(_START_BYTES))
        self._base = self._last  # generation of all tables not in `_tables`
        self._tables: dict[str, _Changes] = {}
        self._tables_max = tables_max

    def of(self, table: str, writer: bytes) -> int:
        """Return the generation of a table for a reader; call it before reading (from any thread).

        Args:
            table: the table's name.
            writer: the id under which the reader itself changes the table.
        """
        changes = self._tables.get(table)
        if changes is None:
            return self._base
        return changes.others if changes.writer == writer else changes.generation

    def change(self, table: str, writer: bytes) -> None:
        """Record a change: after it is visible to readers, and before it is confirmed to the caller.

        Args:
            table: the table's name.
            writer: the reader that made it; empty for any other.
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
