"""Splits the entries of topics into ranges, one for each task. Pure functions.

A topic (or partition of one) is a list of spans: in ledger L there are the entries from ``first`` to ``last``. A range
is a list of spans of one topic too, with what of its first and last entry is not meant. Ranges of one topic follow each
other without gap or overlap, whatever their number: every message is in exactly one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...wire.position import Position

MIN_ENTRIES_PER_RANGE = 100
"""Below it a range of its own costs more than it gains; asked for by number, ranges may be smaller."""


class Span(NamedTuple):
    """Entries of one ledger, ``first`` and ``last`` included."""

    ledger_id: int
    first: int
    last: int

    @property
    def entries(self) -> int:
        """How many."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class TopicRange:
    """The entries that one task reads.

    Attributes:
        topic: full name, of the partition where there are some.
        spans: the entries, at least one.
        first_index: messages of the first entry before this one are not meant.
        last_index: messages of the last entry behind this one are not meant; None: all are.
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
        """How many."""
        return sum(span.entries for span in self.spans)

    def __str__(self) -> str:
        return f"{self.start}..{self.end} of {self.topic}"


def clip(spans: Sequence[Span], start: Position | None, end: Position | None) -> tuple[Span, ...]:
    """Return what of ``spans`` is from ``start`` to ``end``, both included; None has no bound."""
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
    """Return a range cut into ``parts``, or fewer if it has fewer entries; their sizes differ by one entry at most."""
    total = whole.entries
    parts = max(1, min(parts, total))
    pieces: list[list[Span]] = [[] for _ in range(parts)]
    done = 0
    for ledger_id, first, last in whole.spans:
        while first <= last:
            # Piece k holds the entries numbered from total*k//parts on.
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
    """Return at least ``min_ranges`` ranges, as far as there are entries, shared out by the topics' entries.

    Args:
        topics: one range for each topic that has entries.
        min_ranges: wanted in all.
        min_entries: ranges with fewer are made only where a topic has no more.
    """
    total = sum(topic.entries for topic in topics)
    ranges: list[TopicRange] = []
    for topic in topics:
        share = -(-min_ranges * topic.entries // total)  # rounded up, so that the sum is never less than wanted
        ranges += split(topic, min(share, max(1, topic.entries // min_entries)))
    return ranges
