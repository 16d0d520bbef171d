"""What Spark sends to a task: the range that it reads."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from .ranges import TopicRange

RANGES_PER_CORE = 2
"""How many ranges a read is cut into for each core of the driver's machine, where ``minPartitions`` does not say."""


class TopicPartition(InputPartition):
    """The range that one task reads."""

    def __init__(self, wanted: TopicRange):
        super().__init__(str(wanted))
        self.wanted = wanted
