"""A run of a DataFrame function: called once with the backlog, its result written to the output topic exactly once.

Design: what is read is what the plan says. What is written carries the plan's number and run in the producers' names,
and row numbers as sequence ids (`writer`), so a plan that is run again writes nothing twice if it makes the same rows
in the same order in the same partitions. Spark does that by itself as long as rows are not shuffled. A shuffle
guarantees neither order nor partition; so after one, rows are repartitioned by their content, into as many partitions
as the plan says, and sorted there by all columns.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.functions import col, count, lit, to_json
from pyspark.sql.types import StructType

from ...errors import InvalidConfig
from ...instance.endpoint_settings import compression_of
from ...instance.identity import producer_name
from ...instance.spec import InstanceSpec
from ..source.options import read_options
from ..source.partition import TopicPartition
from ..source.ranges import Span, TopicRange
from ..source.security_options import as_options
from ..source.source import MagnetarSource, TopicReader
from ..spark_version import register
from ..task_libraries import announced
from .function_contexts import DataFrameContext
from .plans import RESET_REMEDY, Plan, Task

FORMAT = "magnetar-plan"
_RANGES = "ranges"
_PARTITION = "dataframe"
_GATHERS = re.compile("Exchange|Limit|TakeOrdered|Coalesce|Aggregate|Window")
"""What puts rows of several partitions together, or needs them all in one, by its name in Spark's plans."""
_OBSERVED_WITHIN_S = 1.0
_POLL_S = 0.02


class DataFrameRun:
    """One run.

    Attributes:
        rows: messages that were read, once they are known.
        libraries: what tasks are told of the function's requirements, as of `for_tasks`; empty if there are none.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        spark: SparkSession,
        plan: Plan,
        call: tuple[Callable[..., Any], bool],
        logger: logging.Logger,
    ) -> None:
        """Prepare.

        Args:
            spec: of the function.
            spark: the session of the host.
            plan: to follow.
            call: the function, and whether it takes a context.
            logger: of the function.
        """
        self.rows = 0
        self.libraries = ""
        self._spec = spec
        self._spark = spark.newSession()
        self._plan = plan
        self._function, self._takes_context = call
        self._logger = logger

    def run(self) -> None:
        """Call the function and write what it returns.

        Raises:
            InvalidConfig: it returned what cannot be written.
            Exception: whatever the function or its jobs raise.
        """
        with announced(self._spark, self.libraries):
            self._run()

    def _run(self) -> None:
        activate(self._spark)
        for source in (MagnetarSource, PlannedSource):
            register(self._spark, source)
        # How many tasks a shuffle has must not follow from what this run meets.
        self._spark.conf.set("spark.sql.adaptive.enabled", "false")
        self._spark.conf.set("spark.sql.shuffle.partitions", str(self._plan.shuffles))
        spec = self._spec
        options = options_of(self._plan.tasks, spec.service_url) | as_options(spec.security, spec.service_url)
        backlog = self._spark.read.format(FORMAT).options(**options).load()
        seen = Observation()
        observed = backlog.observe(seen, count(lit(1)).alias("rows"))
        run = self._plan.run_id, self._plan.number
        context = DataFrameContext(self._spec, self._spark, self._logger, run)
        result = self._function(observed, context) if self._takes_context else self._function(observed)
        if isinstance(result, DataFrame):
            self._write(result)
        elif result is not None:
            raise InvalidConfig(
                f"{self._spec.details.className} returned {type(result).__name__}; a DataFrame function returns a"
                " DataFrame, or None"
            )
        self.rows = _observed(seen)

    def _write(self, frame: DataFrame) -> None:
        output = self._spec.details.sink.topic
        if not output:
            raise InvalidConfig(
                f"{self._spec.details.className} returned a DataFrame, and there is no output topic; set output,"
                " or return None"
            )
        if "value" not in frame.columns:
            frame = frame.selectExpr("to_json(struct(*)) AS value")
        number, run_id = self._plan.number, self._plan.run_id
        (
            repeatable(frame, self._plan.shuffles)
            .write.format("magnetar")
            .mode("append")
            .option("service.url", self._spec.service_url)
            .options(**({"admin.url": self._spec.admin_url} if self._spec.admin_url else {}))
            .options(**as_options(self._spec.security, self._spec.service_url, self._spec.admin_url))
            .option("topic", output)
            .option("compression", compression_of(self._spec))
            # Numbers of plans come again where the state store was lost or restored, ids of runs do not.
            .option("producer.name.prefix", f"{producer_name(self._spec, _PARTITION)}/{number}/{run_id}")
            .option("topic.partitions", self._plan.outputs)
            .save()
        )


def activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread: formats are found there, whatever session a frame has."""
    type(spark)._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def repeatable(frame: DataFrame, partitions: int) -> DataFrame:
    """Return a frame whose rows lie in the same partitions in the same order each time that it is made.

    What was only read and mapped does so by itself. All else is spread by content: a shuffle hands rows over as they
    come, and the bounds of a sort are sampled at random.
    """
    if _is_as_read(frame):
        return frame
    columns = list(map(_content, frame.schema.fields))
    return frame.repartition(partitions, *columns).sortWithinPartitions(*columns)


def _is_as_read(frame: DataFrame) -> bool:
    """Return whether each partition of a frame comes from partitions of the backlog alone."""
    plan = frame._jdf.queryExecution().executedPlan()
    if _GATHERS.search(plan.toString()):
        return False
    leaves = plan.collectLeaves()
    return all(leaves.apply(number).nodeName() == f"BatchScan {FORMAT}" for number in range(leaves.size()))


def _content(field: Any) -> Any:
    """Return what a column is spread and sorted by."""
    column = col(f"`{field.name.replace('`', '``')}`")
    # Maps can be neither compared nor hashed, wherever they are.
    return to_json(column) if "map<" in field.dataType.simpleString() else column


def _observed(seen: Any) -> int:
    """Return the number of rows that were read; 0 where no action of the function read all of them."""
    observation = seen._jo
    future = observation.future()
    deadline_s = time.monotonic() + _OBSERVED_WITHIN_S  # the listener hears of an action's end a little later
    while not future.isCompleted():
        if time.monotonic() > deadline_s:
            return 0
        time.sleep(_POLL_S)
    return int(observation.getRow().getLong(0))


def options_of(tasks: Sequence[Task], service_url: str) -> dict[str, str]:
    """Return the options that read what ``tasks`` say."""
    ranges = [(task.wanted.topic, task.wanted.spans) for task in tasks]
    topics = dict.fromkeys(topic for topic, _ in ranges)
    return {"service.url": service_url, "topics": ",".join(topics), _RANGES: json.dumps(ranges)}


class PlannedSource(MagnetarSource):
    """Reads exactly the ranges of a stored plan, however often it is asked; an option lists them.

    Attributes:
        ranges: to read.
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
        """Return what reads."""
        return _PlannedReader(self)


class _PlannedReader(TopicReader):
    def __init__(self, source: PlannedSource) -> None:
        # Unlike for a `MagnetarSource`, entries that are gone are always an error.
        super().__init__(replace(read_options(source.options), remedy=RESET_REMEDY))
        self._ranges = source.ranges

    def partitions(self) -> list[InputPartition]:
        """Return the ranges of the plan."""
        return [TopicPartition(wanted) for wanted in self._ranges]
