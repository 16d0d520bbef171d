"""Differences between the Spark versions allowed by the extra ``spark``: Java versions, settings, class names.

Tested with PySpark 4.0.5, 4.1.4, 4.2.0 and 4.3.0; `make test-spark-versions` repeats these tests.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

_NEWEST_JAVA = {(4, 0): 23, (4, 1): 23}
"""Newest Java for Spark versions whose Hadoop uses ``Subject.getSubject``, which was removed in Java 24."""
_MANAGER = "FileSystemBasedCheckpointFileManager"
_CHECKPOINT_MANAGERS = "org.apache.spark.sql.execution.streaming"


@cache
def installed_spark() -> tuple[int, int] | None:
    """Return the major and minor version of the installed pyspark, or None if pip has not installed it."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and workers need it only for Spark

    try:
        found = re.match(r"(\d+)\.(\d+)", version("pyspark"))
    except PackageNotFoundError:
        return None
    return (int(found[1]), int(found[2])) if found else None


def newest_java(spark: tuple[int, int] | None) -> int | None:
    """Return the newest Java version that works with a Spark version, or None if no limit is known."""
    return None if spark is None else _NEWEST_JAVA.get(spark)


_OF_STREAMS = {
    "SPARK_AUTH_SOCKET_TIMEOUT": "",
    "SPARK_BUFFER_SIZE": "",
    "SPARK_LOCAL_DIRS": "",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
"""Environment variables that streams set for their Python process in Spark 4.0 to 4.3.

The code that starts Python sets the empty ones.
"""


def version_settings(spark: tuple[int, int] | None) -> dict[str, str]:
    """Return the settings that depend on the version of Spark.

    Before 4.1, Spark does not support Unix sockets between the JVM and its Python workers; `worker_setup` describes the
    cost of TCP.
    """
    if spark is not None and spark < (4, 1):
        return {"spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINT_MANAGERS}.{_MANAGER}"}
    return {
        # The default manager runs `readlink` and `chmod` about twenty times per micro-batch, which takes 60 ms. This
        # one supports file system paths; use another manager for checkpoints in an object store.
        "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINT_MANAGERS}.checkpointing.{_MANAGER}",
        "spark.python.unix.domain.socket.enabled": "true",
    }


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source with a session, unless Spark has already discovered it, which Spark 4.0 would reject."""
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    _complete_environment(spark, source.name())


def _complete_environment(spark: SparkSession, name: str) -> None:
    """Add the variables that streams will set to a source's environment.

    Starting streams add these variables to a shared, unsynchronized map, with which the tasks of all streams are sent.
    Two streams that start concurrently corrupt the map, and all their tasks fail with OptionalDataException. For
    existing variables only the values are replaced, which is safe.
    """
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    environment = manager.lookupDataSource(name).dataSourceCls().envVars()
    for variable, value in _OF_STREAMS.items():
        if variable not in environment:
            environment[variable] = value
