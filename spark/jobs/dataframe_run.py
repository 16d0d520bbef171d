"""A run of a DataFrame function: called once with the backlog, its result written to the output topic exactly once.

Design: what is read is what the plan says. What is written carries the plan's number and run in the producers' names,
and row numbers as sequence ids (`writer`), so a plan that is run again writes nothing twice if it makes the same rows
in the same order in the same partitions. Spark does that by itself as long as rows are not shuffled. A shuffle
guarantees neither order nor partition; so after one, rows are repartitioned by their content, into as many partitions
as the plan says, and sorted there by all columns.
"""

from __future__ import annotations

import inspect
import logging
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import InvalidConfig
from ...instance.endpoint_settings import compression_of
from ...instance.identity import producer_name
from ...instance.spec import InstanceSpec
from .function_contexts import DataFrameContext
from .plans import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARAMETER = "df"
_PARTITION = "dataframe"
_GATHERS = re.compile("Exchange|Limit|TakeOrdered|Coalesce|Aggregate|Window")
"""What puts rows of several partitions together, or needs them all in one, by its name in Spark's plans."""
_OBSERVED_WITHIN_S = 1.0
_POLL_S = 0.02


def takes_dataframe(function: Callable[..., Any]) -> bool:
    """Return whether a function takes a DataFrame: its first parameter is called ``df`` or annotated so."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    if not parameters:
        return False
    first, annotation = parameters[0], parameters[0].annotation
    if first.name == PARAMETER:
        return True
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] == "DataFrame"
    return (
        getattr(annotation, "__name__", "") == "DataFrame"
        and getattr(annotation, "__module__", "").partition(".")[0] == "pyspark"
    )


class DataFrameRun:
    """One run.

    Attributes:
        rows: messages that were read, once they are known.
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
        from pyspark.sql import DataFrame, Observation
        from pyspark.sql.functions import count, lit

        from ..source.source import MagnetarSource
        from .planned_source import FORMAT, PlannedSource, options_of

        activate(self._spark)
        for source in (MagnetarSource, PlannedSource):
            self._spark.dataSource.register(source)
        # How many tasks a shuffle has must not follow from what this run meets.
        self._spark.conf.set("spark.sql.adaptive.enabled", "false")
        self._spark.conf.set("spark.sql.shuffle.partitions", str(self._plan.shuffles))
        options = options_of(self._plan.tasks, self._spec.service_url)
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
    from .planned_source import FORMAT

    plan = frame._jdf.queryExecution().executedPlan()
    if _GATHERS.search(plan.toString()):
        return False
    leaves = plan.collectLeaves()
    return all(leaves.apply(number).nodeName() == f"BatchScan {FORMAT}" for number in range(leaves.size()))


def _content(field: Any) -> Any:
    """Return what a column is spread and sorted by."""
    from pyspark.sql.functions import col, to_json

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
