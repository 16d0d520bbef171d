"""What Spark sends to a task: the range that it reads; and with the first one, where all of the read ends."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from .ranges import TopicRange

RANGES_PER_CORE = 2
"""How many ranges a read is cut into for each core of the driver's machine, where ``minPartitions`` does not say."""


class ReadEnd(InputPartition):
    """A part of a plan that says where the read ends; it has no messages.

    Attributes:
        ends: offsets of all topics as JSON text, None where another partition of the plan says it.
    """

    ends: str | None = None


class TopicPartition(ReadEnd):
    """The range that one task reads."""

    def __init__(self, wanted: TopicRange, ends: str | None = None):
        super().__init__(str(wanted))
        self.wanted = wanted
        self.ends = ends


def nothing_but(ends: str) -> ReadEnd:
    """Return the whole plan of a read without messages."""
    there = ReadEnd("nothing")
    there.ends = ends
    return there
