"""The inputs of a DataFrame function's run as DataFrames: one for all inputs, and one for each.

Each frame reads exactly the ranges of the run's plan, regardless of how often it is used. The frame of a single input
has only that input's tasks, so a join reads each input once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import count, lit

from ...config.sql_statement import view_names
from ...errors import InvalidConfig, InvalidTopicName
from ...instance.spec import InstanceSpec
from ...wire.topic_name import parse_topic_name
from ..source.security_options import as_options
from .planned_source import FORMAT, options_of
from .plans import Task

_OBSERVED_WITHIN_S = 1.0
_POLL_S = 0.02


class RunInputs:
    """The inputs of one run. Not thread-safe."""

    def __init__(self, spark: SparkSession, spec: InstanceSpec, tasks: Sequence[Task]) -> None:
        """Create the inputs without reading them.

        Args:
            spark: session in which `PlannedSource` is registered.
            spec: the function.
            tasks: tasks of the plan; an input without tasks has no rows.
        """
        self._spark = spark
        self._spec = spec
        self._tasks = tasks
        self._whole: Observation | None = None
        self._tables: dict[str, tuple[DataFrame, Observation]] = {}

    @property
    def names(self) -> Mapping[str, str]:
        """Short name of each input, keyed by the topic as in the config.

        Raises:
            InvalidConfig: two inputs have the same short name.
        """
        return view_names(self._spec.details.source.inputSpecs)

    def whole(self) -> DataFrame:
        """Return the messages of all inputs."""
        frame, self._whole = self._read(sorted(self._spec.details.source.inputSpecs), self._tasks)
        return frame

    def table(self, name: str) -> DataFrame:
        """Return the messages of one input, as the same frame on each call.

        Args:
            name: full or short topic name, or view name.

        Raises:
            InvalidConfig: the topic is not an input.
        """
        topic = self._topic(name)
        if topic not in self._tables:
            parsed = parse_topic_name(topic)
            of_topic = [task for task in self._tasks if parsed.text in _texts(task.wanted.topic)]
            self._tables[topic] = self._read([topic], of_topic)
        return self._tables[topic][0]

    def _topic(self, name: str) -> str:
        topics = sorted(self._spec.details.source.inputSpecs)  # maps are unordered
        try:
            wanted = parse_topic_name(name).text
        except InvalidTopicName:
            wanted = name
        for topic in topics:
            if parse_topic_name(topic).text == wanted:
                return topic
        for topic, view in self.names.items():
            if view.lower() == name.lower():
                return topic
        raise InvalidConfig(f"{name!r} is not an input of the function: expected one of {', '.join(topics)}")

    def _read(self, topics: Sequence[str], tasks: Sequence[Task]) -> tuple[DataFrame, Observation]:
        spec, seen = self._spec, Observation()
        options = options_of(topics, tasks, spec.service_url) | as_options(spec.security, spec.service_url)
        frame = self._spark.read.format(FORMAT).options(**options).load()
        return frame.observe(seen, count(lit(1)).alias("rows")), seen

    def rows(self) -> int:
        """Return the number of messages read, without duplicates; 0 if no action read an entire frame."""
        deadline_s = time.monotonic() + _OBSERVED_WITHIN_S  # the listener is called shortly after the end of an action
        rows = sum(_observed(seen, deadline_s) for _, seen in self._tables.values())
        if self._whole is None:
            return rows
        return max(rows, _observed(self._whole, 0.0 if self._tables else deadline_s))


def _texts(topic: str) -> tuple[str, str]:
    """Return the possible names of the input that a task's topic belongs to: its own, and the partitioned topic's."""
    parsed = parse_topic_name(topic)
    return parsed.text, parsed.base.text


def _observed(seen: Observation, deadline_s: float) -> int:
    observation: Any = seen._jo  # PySpark's own `get` blocks forever if no action has read the entire frame
    if observation is None:
        return 0
    future = observation.future()
    while not future.isCompleted():
        if time.monotonic() > deadline_s:
            return 0
        time.sleep(_POLL_S)
    return int(seen.get["rows"])
