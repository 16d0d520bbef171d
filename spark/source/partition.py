"""Partitions that Spark sends to tasks: ranges to read. The first one also contains the end of the read."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from .ranges import TopicRange

RANGES_PER_CORE = 2
"""Number of ranges per core of the driver's machine, unless ``minPartitions`` is set."""


class ReadEnd(InputPartition):
    """Partition without messages that contains the end of the read.

    Attributes:
        ends: end offsets of all topics as JSON; None if another partition of the plan contains them.
    """

    ends: str | None = None


class TopicPartition(ReadEnd):
    """Range read by one task."""

    def __init__(self, wanted: TopicRange, ends: str | None = None):
        super().__init__(str(wanted))
        self.wanted = wanted
        self.ends = ends


def nothing_but(ends: str) -> ReadEnd:
    """Return the plan of a read without messages."""
    there = ReadEnd("nothing")
    there.ends = ends
    return there
