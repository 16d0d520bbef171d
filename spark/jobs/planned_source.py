"""The data source of DataFrame functions: reads exactly the ranges of a stored plan, however often it is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..source.options import read_options
from ..source.ranges import Span, TopicRange
from ..source.source import MagnetarSource, TopicPartition, TopicReader
from .plans import RESET_REMEDY, Task

FORMAT = "magnetar-plan"
_RANGES = "ranges"


def options_of(tasks: Sequence[Task], service_url: str) -> dict[str, str]:
    """Return the options that read what ``tasks`` say."""
    ranges = [(task.wanted.topic, task.wanted.spans) for task in tasks]
    topics = dict.fromkeys(topic for topic, _ in ranges)
    return {"service.url": service_url, "topics": ",".join(topics), _RANGES: json.dumps(ranges)}


class PlannedSource(MagnetarSource):
    """Reads the ranges that an option lists."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return FORMAT

    def __init__(self, options: dict[str, str]) -> None:
        options = dict(options)
        self._ranges = [
            TopicRange(topic, tuple(Span(*span) for span in spans)) for topic, spans in json.loads(options.pop(_RANGES))
        ]
        super().__init__(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads."""
        return _PlannedReader(self)

    @property
    def ranges(self) -> list[TopicRange]:
        """The ranges to read."""
        return self._ranges


class _PlannedReader(TopicReader):
    def __init__(self, source: PlannedSource) -> None:
        super().__init__(read_options(source.options))
        self._ranges = source.ranges

    def partitions(self) -> list[InputPartition]:
        """Return the ranges of the plan."""
        return [TopicPartition(wanted) for wanted in self._ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the messages of a range; unlike for `MagnetarSource`, entries that are gone are always an error."""
        from ..source.columns import read_range

        if not isinstance(partition, TopicPartition):
            return iter(())  # what Spark makes of an empty plan
        return read_range(partition.wanted, self._options, RESET_REMEDY)
