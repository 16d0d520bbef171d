"""The statement of a function without code, run by Spark: over its inputs as temporary views of its own session."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ...config.sql_statement import check_statement
from ...errors import InvalidConfig
from ...instance.spec import InstanceSpec
from ..source.rows import check_columns
from ..spark_version import register
from .planned_source import PlannedSource, activate
from .run_inputs import RunInputs

_LINE = re.compile(r"\bline (\d+)")


def query(spark: SparkSession, inputs: RunInputs, statement: str) -> DataFrame:
    """Return what a statement gives; nothing is read yet.

    Args:
        spark: a session of the function's own, in which the views are made.
        inputs: of the run.
        statement: a single query.

    Raises:
        InvalidConfig: Spark does not understand it, or it asks for what is not there; one line that says where.
    """
    for topic, view in inputs.names.items():
        inputs.table(topic).createOrReplaceTempView(f"`{view}`")
    try:
        # In parentheses only queries are possible: the grammar has WITH and FROM before INSERT, too, and Spark would
        # carry that out at once. On lines of their own, so that places in a line stay and a comment may end it.
        return spark.sql(f"SELECT * FROM (\n{check_statement(statement)}\n)")  # noqa: S608  it is the user's own
    except PySparkException as error:
        raise InvalidConfig(f"sql: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return _LINE.sub(lambda found: f"line {int(found[1]) - 1}", line).rstrip(";")


def check_query(spark: SparkSession, spec: InstanceSpec, statement: str) -> None:
    """Have Spark analyse a statement over inputs that have no rows.

    Args:
        spark: any session.
        spec: of the function.
        statement: of it.

    Raises:
        InvalidConfig: it cannot be run, or its result not be written.
    """
    own = spark.newSession()
    activate(own)
    register(own, PlannedSource)
    frame = query(own, RunInputs(own, spec, ()), statement)
    if "value" in frame.columns:
        columns = [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
        check_columns(columns, spec.details.sink.topic)
