"""Stream reader for Spark.

Spark keeps one instance in the query's Python process for offsets, plans and commits, and pickles another to the tasks
for `read`. Data for tasks is therefore passed in their partitions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ..first_line import told_first
from ..partition import RANGES_PER_CORE, TopicPartition
from ..ranges import MIN_ENTRIES_PER_RANGE, plan
from .admission import NO_LIMITS
from .options import StreamOptions, has_read_limits
from .places import Cut, cut_of, from_json, to_json, with_cut

if TYPE_CHECKING or has_read_limits():
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class SupportsTriggerAvailableNow:
        """Stand-in for the mixin that PySpark provides from version 4.2."""


if TYPE_CHECKING:
    from ..schemas.layout import Layout
    from .stream import TopicStream


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the batches of a stream."""

    def __init__(self, options: StreamOptions, layout: Layout | None = None):
        self._options = options
        self._layout = layout
        self._made: TopicStream | None = None
        self._end: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_layout": self._layout, "_made": None, "_end": None}

    @property
    def _stream(self) -> TopicStream:
        if self._made is None:
            from .stream import TopicStream

            self._made = TopicStream(self._options)
        return self._made

    @told_first
    def initialOffset(self) -> dict[str, Any]:
        """Return the start offset of a new query."""
        return to_json(self._stream.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit shown by Spark; some triggers request all available data instead."""
        limits = self._options.limits
        if limits.max_rows is not None:
            return ReadMaxRows(limits.max_rows)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadMinRows(limits.min_rows) if limits.min_rows is not None else ReadAllAvailable()

    @told_first
    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the end offset of the next batch."""
        if start is None:  # before PySpark 4.2
            start = self._end if self._end is not None else self.initialOffset()
        is_limited = limit is not None and not isinstance(limit, ReadAllAvailable)
        places = from_json(start)
        end = to_json(self._stream.latest(places, self._options.limits if is_limited else NO_LIMITS))
        # Spark compares offsets as strings: without new data, the same string must be returned regardless of how the
        # last batch was split.
        return start if end == to_json(places) else with_cut(end, self._cut())

    def _cut(self) -> Cut:
        least = self._options.read.min_partitions
        if least is not None:
            return Cut(least)
        return Cut(RANGES_PER_CORE * (os.cpu_count() or 1), MIN_ENTRIES_PER_RANGE)

    @told_first
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end offset of the topics, for the progress of the query."""
        return to_json(self._stream.newest()) or None

    @told_first
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run of the query."""
        self._stream.fix_end()

    @told_first
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges of a batch."""
        self._end = end
        wholes = self._stream.ranges(from_json(start), from_json(end))
        if not wholes:
            return []
        cut = cut_of(end) or self._cut()
        return [TopicPartition(wanted) for wanted in plan(wholes, cut.tasks, cut.entries)]

    @told_first
    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the messages of a range as record batches."""
        assert isinstance(partition, TopicPartition)
        from ..columns import read_range

        return read_range(partition.wanted, self._options.read, self._layout)

    @told_first
    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge to the broker what Spark has committed."""
        self._stream.acknowledge(from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        if self._made is not None:
            self._made.close()
