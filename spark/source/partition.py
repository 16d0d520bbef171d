"""The partitions that Spark sends to tasks: ranges to read; the first one also holds the end of the whole read."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from .ranges import TopicRange

RANGES_PER_CORE = 2
"""Number of ranges per core of the driver's machine, unless ``minPartitions`` is set."""


class ReadEnd(InputPartition):
    """A part of a plan that holds the end of the read, without messages.

    Attributes:
        ends: offsets of all topics as JSON text, None if another partition of the plan holds them.
    """

    ends: str | None = None


class TopicPartition(ReadEnd):
    """The range read by one task."""

    def __init__(self, wanted: TopicRange, ends: str | None = None):
        super().__init__(str(wanted))
        self.wanted = wanted
        self.ends = ends


def nothing_but(ends: str) -> ReadEnd:
    """Return the whole plan of a read without messages."""
    there = ReadEnd("nothing")
    there.ends = ends
    return there
