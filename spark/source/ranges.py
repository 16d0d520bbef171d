"""Splits the entries of topics into ranges, one per task. No I/O.

A topic (or partition) is a list of spans: ledger L has the entries from ``first`` to ``last``. A range is also a list
of spans of one topic, without excluded parts of its first and last entry. Ranges of one topic are consecutive, without
gap or overlap, whatever their number: every message is in exactly one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...wire.position import Position

MIN_ENTRIES_PER_RANGE = 100
"""A smaller range costs more than it gains; if a number of ranges was requested, they may be smaller."""


class Span(NamedTuple):
    """Entries of one ledger, from ``first`` to ``last`` inclusive."""

    ledger_id: int
    first: int
    last: int

    @property
    def entries(self) -> int:
        """Number of entries."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class TopicRange:
    """The entries read by one task.

    Attributes:
        topic: full name, of a partition if there are any.
        spans: the entries, at least one.
        first_index: earlier messages of the first entry are excluded.
        last_index: later messages of the last entry are excluded; None for none.
    """

    topic: str
    spans: tuple[Span, ...]
    first_index: int = 0
    last_index: int | None = None

    @property
    def start(self) -> Position:
        """First entry."""
        return Position(self.spans[0].ledger_id, self.spans[0].first)

    @property
    def end(self) -> Position:
        """Last entry."""
        return Position(self.spans[-1].ledger_id, self.spans[-1].last)

    @property
    def entries(self) -> int:
        """Number of entries."""
        return sum(span.entries for span in self.spans)

    def __str__(self) -> str:
        return f"{self.start}..{self.end} of {self.topic}"


def clip(spans: Sequence[Span], start: Position | None, end: Position | None) -> tuple[Span, ...]:
    """Return the part of ``spans`` from ``start`` to ``end``, both inclusive; None for no bound."""
    kept = []
    for ledger_id, first, last in spans:
        if start is not None:
            if ledger_id < start.ledger_id:
                continue
            if ledger_id == start.ledger_id:
                first = max(first, start.entry_id)
        if end is not None:
            if ledger_id > end.ledger_id:
                continue
            if ledger_id == end.ledger_id:
                last = min(last, end.entry_id)
        if first <= last:
            kept.append(Span(ledger_id, first, last))
    return tuple(kept)


def holds(spans: Sequence[Span], position: Position) -> bool:
    """Return whether an entry is in one of the spans."""
    return any(span.ledger_id == position.ledger_id and span.first <= position.entry_id <= span.last for span in spans)


def split(whole: TopicRange, parts: int) -> list[TopicRange]:
    """Split a range into ``parts``, or fewer if it has fewer entries; their sizes differ by at most one entry."""
    total = whole.entries
    parts = max(1, min(parts, total))
    pieces: list[list[Span]] = [[] for _ in range(parts)]
    done = 0
    for ledger_id, first, last in whole.spans:
        while first <= last:
            # Piece k has the entries numbered from total*k//parts on.
            piece = ((done + 1) * parts - 1) // total
            room = total * (piece + 1) // parts - done
            stop = min(last, first + room - 1)
            pieces[piece].append(Span(ledger_id, first, stop))
            done += stop - first + 1
            first = stop + 1
    ranges = [TopicRange(whole.topic, tuple(piece)) for piece in pieces]
    head, tail = ranges[0], ranges[-1]
    if parts == 1:
        return [whole]
    ranges[0] = TopicRange(head.topic, head.spans, first_index=whole.first_index)
    ranges[-1] = TopicRange(tail.topic, tail.spans, last_index=whole.last_index)
    return ranges


def plan(topics: Sequence[TopicRange], min_ranges: int, min_entries: int = 1) -> list[TopicRange]:
    """Return at least ``min_ranges`` ranges, if there are enough entries, distributed by the topics' entries.

    Args:
        topics: one range for each topic that has entries.
        min_ranges: total number of ranges.
        min_entries: smaller ranges are only created for topics with fewer entries.
    """
    total = sum(topic.entries for topic in topics)
    ranges: list[TopicRange] = []
    for topic in topics:
        share = -(-min_ranges * topic.entries // total)  # rounded up, so that the sum is never too small
        ranges += split(topic, min(share, max(1, topic.entries // min_entries)))
    return ranges
