"""A run of a DataFrame function: calls it once with the backlog and writes its result to the output exactly once.

Design: the plan determines the entries to read. Producer names contain the plan number and the run, and row numbers
serve as sequence ids (`writer`), so a repeated plan creates no duplicates if it produces the same rows in the same
order and partitions. Spark guarantees this unless rows are shuffled. After a shuffle, rows are therefore repartitioned
by their content into the number of partitions in the plan, and sorted by all columns within each partition.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, to_json

from ...errors import InvalidConfig
from ...instance.endpoint_settings import compression_of
from ...instance.identity import producer_name
from ...instance.spec import InstanceSpec
from ..source.security_options import as_options
from ..source.source import MagnetarSource
from ..spark_version import register
from ..task_libraries import announced
from .function_contexts import DataFrameContext
from .planned_source import FORMAT, PlannedSource, activate
from .plans import Plan
from .run_inputs import RunInputs
from .statement import query

Call = tuple[Callable[..., Any], bool]
"""A function and whether it takes a context."""
_PARTITION = "dataframe"
_GATHERS = re.compile("Exchange|Limit|TakeOrdered|Coalesce|Aggregate|Window")
"""Operators in Spark's plans that combine rows from several partitions, or require all rows in one partition."""


class DataFrameRun:
    """One run of a DataFrame function.

    Attributes:
        rows: number of messages read, once known.
        libraries: the function's requirements for tasks, as returned by `for_tasks`; empty without requirements.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        spark: SparkSession,
        plan: Plan,
        work: Call | str,
        logger: logging.Logger,
    ) -> None:
        """Create the run.

        Args:
            spec: the function.
            spark: the host's session.
            plan: plan to execute.
            work: the function or its SQL statement.
            logger: the function's logger.
        """
        self.rows = 0
        self.libraries = ""
        self._spec = spec
        self._spark = spark.newSession()
        self._plan = plan
        self._work = work
        self._logger = logger

    def run(self) -> None:
        """Call the function and write its result.

        Raises:
            InvalidConfig: the result cannot be written.
            Exception: raised by the function or its jobs.
        """
        with announced(self._spark, self.libraries):
            self._run()

    def _run(self) -> None:
        activate(self._spark)
        for source in (MagnetarSource, PlannedSource):
            register(self._spark, source)
        # The number of shuffle tasks must not depend on the data of this run.
        self._spark.conf.set("spark.sql.adaptive.enabled", "false")
        self._spark.conf.set("spark.sql.shuffle.partitions", str(self._plan.shuffles))
        inputs = RunInputs(self._spark, self._spec, self._plan.tasks)
        result = (
            query(self._spark, inputs, self._work) if isinstance(self._work, str) else self._call(inputs, *self._work)
        )
        if isinstance(result, DataFrame):
            self._write(result)
        elif result is not None:
            raise InvalidConfig(
                f"{self._spec.details.className} returned {type(result).__name__}: a DataFrame "
                "function must return a DataFrame or None"
            )
        self.rows = inputs.rows()

    def _call(self, inputs: RunInputs, function: Callable[..., Any], takes_context: bool) -> Any:
        whole = inputs.whole()
        if not takes_context:
            return function(whole)
        run = self._plan.run_id, self._plan.number
        return function(whole, DataFrameContext(self._spec, self._spark, self._logger, run, inputs))

    def _write(self, frame: DataFrame) -> None:
        output = self._spec.details.sink.topic
        if not output:
            raise InvalidConfig(
                f"{self._spec.details.className} returned a DataFrame but has no output topic: set output, or"
                " return None"
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
            # Unlike run ids, plan numbers are reused if the state store was lost or restored.
            .option("producer.name.prefix", f"{producer_name(self._spec, _PARTITION)}/{number}/{run_id}")
            .option("topic.partitions", self._plan.outputs)
            .save()
        )


def repeatable(frame: DataFrame, partitions: int) -> DataFrame:
    """Return a frame whose rows have the same partitions and order each time it is computed.

    This already holds for rows that were only read and mapped. All others are redistributed by content, because a
    shuffle delivers rows in any order and a sort chooses its bounds by random sampling.
    """
    if _is_as_read(frame):
        return frame
    columns = list(map(_content, frame.schema.fields))
    return frame.repartition(partitions, *columns).sortWithinPartitions(*columns)


def _is_as_read(frame: DataFrame) -> bool:
    """Return whether each partition of a frame maps to a partition of the backlog, without shuffling."""
    plan = frame._jdf.queryExecution().executedPlan()
    if _GATHERS.search(plan.toString()):
        return False
    leaves = plan.collectLeaves()
    return all(leaves.apply(number).nodeName() == f"BatchScan {FORMAT}" for number in range(leaves.size()))


def _content(field: Any) -> Any:
    """Return the expression for distributing and sorting rows by a column."""
    column = col(f"`{field.name.replace('`', '``')}`")
    # Maps, at any depth, can be neither compared nor hashed.
    return to_json(column) if "map<" in field.dataType.simpleString() else column
