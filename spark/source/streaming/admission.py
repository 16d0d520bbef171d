"""Decides how much of the available data goes into the next batch of a stream. No I/O.

Brokers count entries, which are producer batches, and not messages. The available data is therefore known in entries,
and the number of messages and bytes per entry is estimated from the first entries (`sampling`). Limits are as accurate
as the estimate, exact if all entries are alike, and never split an entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """Available data in one topic.

    Attributes:
        topic: full name.
        entries: number of entries, at least one.
        rows_per_entry: average number of messages per entry.
        bytes_per_entry: average stored size of an entry.
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
        """Whether the limits depend on the sizes of entries."""
        return any(limit is not None for limit in (self.max_rows, self.max_bytes, self.min_rows))


NO_LIMITS = Limits()


def must_wait(waiting: Sequence[Waiting], limits: Limits, since_last_s: float | None) -> bool:
    """Return whether the next batch must wait for more data.

    Args:
        waiting: available data by topic.
        limits: limits of the stream.
        since_last_s: time since the last batch; None if there was none in this process, in which case the batch does
            not wait.
    """
    if limits.min_rows is None or since_last_s is None or since_last_s >= limits.max_delay_s:
        return False
    return sum(one.entries * one.rows_per_entry for one in waiting) < limits.min_rows


def admit(waiting: Sequence[Waiting], limits: Limits) -> dict[str, int]:
    """Return the number of entries in the next batch by topic, omitting topics without entries.

    The limit is shared in proportion to each topic's available data, rounded down to whole entries. The remainder goes
    to the topics with the largest fractions. The result has at least one entry, so that no limit can stop a stream.
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
    return limit is None or amount <= limit + 1e-6 * limit  # averages are not exact
