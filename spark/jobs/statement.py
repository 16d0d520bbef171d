"""Functions that are SQL statements, which Spark runs over their inputs as temporary views of a separate session."""

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
    """Return the result of a statement as a DataFrame, without reading anything.

    Args:
        spark: the function's own session, in which the views are created.
        inputs: the run's inputs.
        statement: a single query.

    Raises:
        InvalidConfig: Spark cannot parse or resolve the statement; the message is one line with the position.
    """
    for topic, view in inputs.names.items():
        inputs.table(topic).createOrReplaceTempView(f"`{view}`")
    try:
        # Only queries are allowed in parentheses. Without them, the grammar also allows WITH and FROM before INSERT,
        # which Spark would execute immediately. The parentheses are on separate lines to preserve error positions
        # within a line, and because the statement may end with a comment.
        return spark.sql(f"SELECT * FROM (\n{check_statement(statement)}\n)")  # noqa: S608  the statement is the user's own
    except PySparkException as error:
        raise InvalidConfig(f"sql: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return _LINE.sub(lambda found: f"line {int(found[1]) - 1}", line).rstrip(";")


def check_query(spark: SparkSession, spec: InstanceSpec, statement: str) -> None:
    """Make Spark analyze a statement over empty inputs.

    Args:
        spark: any session.
        spec: the function.
        statement: the function's SQL statement.

    Raises:
        InvalidConfig: the statement cannot be run, or its result cannot be written.
    """
    own = spark.newSession()
    activate(own)
    register(own, PlannedSource)
    frame = query(own, RunInputs(own, spec, ()), statement)
    if "value" in frame.columns:
        columns = [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
        check_columns(columns, spec.details.sink.topic)
