"""How much of what is waiting goes into the next batch of a stream. Pure functions.

Brokers count entries, not messages: an entry is a batch of some producer. So what waits is known in entries, and how
many messages and bytes one has is estimated from the first of them (`sampling`). Limits are kept as far as the estimate
is right, exactly where all entries are alike, and never cut an entry in two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits in one topic.

    Attributes:
        topic: full name.
        entries: one or more.
        rows_per_entry: messages, on the average.
        bytes_per_entry: as stored, on the average.
    """

    topic: str
    entries: int
    rows_per_entry: float = 1.0
    bytes_per_entry: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a batch; None for no limit.

    Attributes:
        max_rows: maximum number of messages.
        max_bytes: maximum stored bytes.
        min_rows: number of messages to wait for.
        max_delay_s: maximum wait since the previous batch.
    """

    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay_s: float = 0.0

    @property
    def needs_estimates(self) -> bool:
        """Whether it matters what entries hold."""
        return any(limit is not None for limit in (self.max_rows, self.max_bytes, self.min_rows))


NO_LIMITS = Limits()


def must_wait(waiting: Sequence[Waiting], limits: Limits, since_last_s: float | None) -> bool:
    """Return whether the next batch waits for more.

    Args:
        waiting: by topic.
        limits: of the stream.
        since_last_s: since the last batch was made; None if there was none in this process, which never waits.
    """
    if limits.min_rows is None or since_last_s is None or since_last_s >= limits.max_delay_s:
        return False
    return sum(one.entries * one.rows_per_entry for one in waiting) < limits.min_rows


def admit(waiting: Sequence[Waiting], limits: Limits) -> dict[str, int]:
    """Return how many entries of each topic the next batch has, by topic; those with none are left out.

    Each topic gets its part of the limit in proportion to what waits there, in whole entries. What rounding down leaves
    goes to those that it took most of. There is one entry at least, so that no limit stops a stream.
    """
    share = min(
        _share(limits.max_rows, sum(one.entries * one.rows_per_entry for one in waiting)),
        _share(limits.max_bytes, sum(one.entries * one.bytes_per_entry for one in waiting)),
    )
    if share >= 1:
        return {one.topic: one.entries for one in waiting}
    given = {one.topic: int(one.entries * share) for one in waiting}
    rows = sum(given[one.topic] * one.rows_per_entry for one in waiting)
    size = sum(given[one.topic] * one.bytes_per_entry for one in waiting)
    by_remainder = sorted(waiting, key=lambda one: given[one.topic] - one.entries * share)
    for one in by_remainder:
        rows_then, size_then = rows + one.rows_per_entry, size + one.bytes_per_entry
        fits = _fits(rows_then, limits.max_rows) and _fits(size_then, limits.max_bytes)
        if fits and given[one.topic] < one.entries:
            given[one.topic] += 1
            rows, size = rows_then, size_then
    if not any(given.values()) and waiting:
        given[by_remainder[0].topic] = 1
    return {topic: entries for topic, entries in given.items() if entries}


def _share(limit: int | None, total: float) -> float:
    return 1.0 if limit is None or total <= limit else limit / total


def _fits(amount: float, limit: int | None) -> bool:
    return limit is None or amount <= limit + 1e-6 * limit  # averages are no exact numbers
