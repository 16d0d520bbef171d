"""Differences between the Spark versions allowed by the extra ``spark``: Java, settings, class names.

Source: tested with PySpark 4.0.5, 4.1.4, 4.2.0 and 4.3.0; `make test-spark-versions` repeats that.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

_NEWEST_JAVA = {(4, 0): 23, (4, 1): 23}
"""For versions whose Hadoop uses ``Subject.getSubject``, which Java 24 removed."""
_MANAGER = "FileSystemBasedCheckpointFileManager"
_CHECKPOINT_MANAGERS = "org.apache.spark.sql.execution.streaming"


@cache
def installed_spark() -> tuple[int, int] | None:
    """Return major and minor version of the installed pyspark; None if pip has not installed it."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and workers only need it for Spark

    try:
        found = re.match(r"(\d+)\.(\d+)", version("pyspark"))
    except PackageNotFoundError:
        return None
    return (int(found[1]), int(found[2])) if found else None


def newest_java(spark: tuple[int, int] | None) -> int | None:
    """Return the newest Java for a version of Spark; None if no limit is known."""
    return None if spark is None else _NEWEST_JAVA.get(spark)


_OF_STREAMS = {
    "SPARK_AUTH_SOCKET_TIMEOUT": "",
    "SPARK_BUFFER_SIZE": "",
    "SPARK_LOCAL_DIRS": "",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
"""Variables that streams set for their Python process, from Spark 4.0 to 4.3; the empty ones are set by the code that
starts Python.
"""


def version_settings(spark: tuple[int, int] | None) -> dict[str, str]:
    """Return the settings that depend on the version of Spark.

    Before 4.1 there are no Unix sockets between the JVM and its Python workers; see `worker_setup` on TCP.
    """
    if spark is not None and spark < (4, 1):
        return {"spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINT_MANAGERS}.{_MANAGER}"}
    return {
        # The default manager starts `readlink` and `chmod` about twenty times per micro-batch: 60 ms. This one is for
        # paths of a file system; use another one for checkpoints in an object store.
        "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINT_MANAGERS}.checkpointing.{_MANAGER}",
        "spark.python.unix.domain.socket.enabled": "true",
    }


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source with a session; an already discovered one stays, because 4.0 insists on it."""
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    _complete_environment(spark, source.name())


def _complete_environment(spark: SparkSession, name: str) -> None:
    """Add the names to a source's environment that its streams will set.

    Streams put them into a shared, unsynchronized map when they start, and the tasks of all of them are sent with it:
    two streams that start at the same time damage it, and each of their tasks fails with OptionalDataException. For an
    existing name only the value is replaced, which damages nothing.
    """
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    environment = manager.lookupDataSource(name).dataSourceCls().envVars()
    for variable, value in _OF_STREAMS.items():
        if variable not in environment:
            environment[variable] = value
