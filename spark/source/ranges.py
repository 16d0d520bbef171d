"""Splits the entries of topics into ranges, one per task. No I/O.

A topic or partition is a list of spans: ledger L contains the entries from ``first`` to ``last``. A range is a list of
spans of one topic, and may exclude messages at the start of its first entry and the end of its last entry. The ranges
of a topic are consecutive, without gaps or overlaps, so every message is in exactly one range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...wire.position import Position

MIN_ENTRIES_PER_RANGE = 100
"""Minimum entries per range, as smaller ranges are inefficient; ignored if a number of ranges is requested."""


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
    """Entries read by one task.

    Attributes:
        topic: full topic name; of a partition if the topic is partitioned.
        spans: spans of the range, at least one.
        first_index: batch index of the first message in the first entry; earlier messages are excluded.
        last_index: batch index of the last message in the last entry; later messages are excluded. None to include all.
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
    """Return the part of ``spans`` from ``start`` to ``end``, both inclusive; None means no bound."""
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
    """Return whether an entry is in any of the spans."""
    return any(span.ledger_id == position.ledger_id and span.first <= position.entry_id <= span.last for span in spans)


def split(whole: TopicRange, parts: int) -> list[TopicRange]:
    """Split a range into at most ``parts`` ranges whose sizes differ by at most one entry."""
    total = whole.entries
    parts = max(1, min(parts, total))
    pieces: list[list[Span]] = [[] for _ in range(parts)]
    done = 0
    for ledger_id, first, last in whole.spans:
        while first <= last:
            # Piece k starts with entry number total*k//parts.
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
    """Split topics into at least ``min_ranges`` ranges, if there are enough entries, in proportion to their entries.

    Args:
        topics: one range for each topic with entries.
        min_ranges: minimum total number of ranges.
        min_entries: minimum number of entries per range, except for topics with fewer entries.
    """
    total = sum(topic.entries for topic in topics)
    ranges: list[TopicRange] = []
    for topic in topics:
        share = -(-min_ranges * topic.entries // total)  # rounded up, so that the sum is never too small
        ranges += split(topic, min(share, max(1, topic.entries // min_entries)))
    return ranges
