"""Data source that reads exactly the ranges of a stored plan."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..source.options import read_options
from ..source.partition import TopicPartition
from ..source.ranges import Span, TopicRange
from ..source.source import MagnetarSource, TopicReader
from .plans import RESET_REMEDY, Task

FORMAT = "magnetar-plan"
_RANGES = "ranges"


def activate(spark: SparkSession) -> None:
    """Make a session active in this thread: Spark looks up formats there, not in a frame's own session."""
    type(spark)._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def options_of(topics: Sequence[str], tasks: Sequence[Task], service_url: str) -> dict[str, str]:
    """Return the options for reading the ranges of ``topics`` in ``tasks``; a topic may have no ranges."""
    ranges = [(task.wanted.topic, task.wanted.spans) for task in tasks]
    return {"service.url": service_url, "topics": ",".join(topics), _RANGES: json.dumps(ranges)}


class PlannedSource(MagnetarSource):
    """Reads exactly the ranges of a stored plan, which are listed in an option, each time it is read.

    Attributes:
        ranges: ranges to read.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return FORMAT

    def __init__(self, options: dict[str, str]) -> None:
        options = dict(options)
        self.ranges = [
            TopicRange(topic, tuple(Span(*span) for span in spans)) for topic, spans in json.loads(options.pop(_RANGES))
        ]
        super().__init__(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return _PlannedReader(self)


class _PlannedReader(TopicReader):
    def __init__(self, source: PlannedSource) -> None:
        # Unlike in a `MagnetarSource`, missing entries are always an error.
        super().__init__(replace(read_options(source.options), remedy=RESET_REMEDY))
        self._ranges = source.ranges

    def partitions(self) -> list[InputPartition]:
        """Return the ranges of the plan."""
        return [TopicPartition(wanted) for wanted in self._ranges]
