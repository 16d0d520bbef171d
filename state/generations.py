"""Generations: tells a reader of a table whether anybody but itself has changed it since it last asked.

Design: a generation is a number that a reader compares with the one it had before; equal means that what it read then,
and changed itself since, is still what the table holds. Each table remembers its last writer, the generation of that
one's last change, and that of the last change by anybody else, so the answer for every writer is one look. The first
number of a process is random: after a restart no generation of before is found again.

Threads: one changes, any number ask.
"""

from __future__ import annotations

import os
from typing import NamedTuple

TABLES_MAX = 10_000
"""Tables whose changes are told apart; readers of the others are told of a change when there are more."""
_START_BYTES = 7


class _Changes(NamedTuple):
    """The last changes of a table.

    Attributes:
        writer: who made the last one; empty: nobody in particular.
        generation: of the last one.
        others: of the last one that this writer did not make.
    """

    writer: bytes
    generation: int
    others: int


class Generations:
    """The generations of all tables, in memory only."""

    def __init__(self, tables_max: int = TABLES_MAX) -> None:
        """Begin with numbers that no process before has given.

        Args:
            tables_max: how many tables are told apart.
        """
        self._last = 1 + int.from_bytes(os.urandom(_START_BYTES))
        self._base = self._last  # of all tables that are not in `_tables`
        self._tables: dict[str, _Changes] = {}
        self._tables_max = tables_max

    def of(self, table: str, writer: bytes) -> int:
        """Return the generation of a table for a reader; to be asked before reading (from any thread).

        Args:
            table: its name.
            writer: by which the reader changes the table.
        """
        changes = self._tables.get(table)
        if changes is None:
            return self._base
        return changes.others if changes.writer == writer else changes.generation

    def change(self, table: str, writer: bytes) -> None:
        """Note a change that readers see by now; before anybody is told that it is made.

        Args:
            table: its name.
            writer: who made it; empty if no reader made it.
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
            # First the number: who does not find the table any more must find another one than it has.
            self._base = self._last
            self._last += 1
            del self._tables[next(iter(self._tables))]
