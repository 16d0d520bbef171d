"""What differs between the versions of Spark that the extra ``spark`` allows: Java, settings, names of classes.

Source: tried with PySpark 4.0.5, 4.1.4, 4.2.0 and 4.3.0; `make test-spark-versions` does it again.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

_NEWEST_JAVA = {(4, 0): 23, (4, 1): 23}
"""Of versions whose Hadoop asks Java for what Java 24 has no more (``Subject.getSubject``)."""
_MANAGER = "FileSystemBasedCheckpointFileManager"
_CHECKPOINT_MANAGERS = "org.apache.spark.sql.execution.streaming"


@cache
def installed_spark() -> tuple[int, int] | None:
    """Return major and minor version of the installed pyspark; None if pip installed none."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and workers need it for Spark only

    try:
        found = re.match(r"(\d+)\.(\d+)", version("pyspark"))
    except PackageNotFoundError:
        return None
    return (int(found[1]), int(found[2])) if found else None


def newest_java(spark: tuple[int, int] | None) -> int | None:
    """Return the newest Java that a version of Spark runs on; None where no limit is known."""
    return None if spark is None else _NEWEST_JAVA.get(spark)


_OF_STREAMS = {
    "SPARK_AUTH_SOCKET_TIMEOUT": "",
    "SPARK_BUFFER_SIZE": "",
    "SPARK_LOCAL_DIRS": "",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
"""What streams set for their Python process, from Spark 4.0 to 4.3; who starts Python sets the empty ones."""


def version_settings(spark: tuple[int, int] | None) -> dict[str, str]:
    """Return the settings whose values depend on the version of Spark.

    Before 4.1 there are no Unix sockets between the JVM and its Python workers; see `worker_setup` on TCP.
    """
    if spark is not None and spark < (4, 1):
        return {"spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINT_MANAGERS}.{_MANAGER}"}
    return {
        # The default manager starts `readlink` and `chmod` some twenty times per micro-batch: 60 ms. For paths of a
        # file system; give another one for checkpoints in an object store.
        "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINT_MANAGERS}.checkpointing.{_MANAGER}",
        "spark.python.unix.domain.socket.enabled": "true",
    }


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source with a session; one that Spark has found by itself already stays, as 4.0 insists on."""
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    _complete_environment(spark, source.name())


def _complete_environment(spark: SparkSession, name: str) -> None:
    """Give a source's environment the names that its streams will set.

    Streams put them into one unsynchronized map when they start, and the tasks of all of them are sent with it: two
    that start at once damage it, and each of their tasks fails with OptionalDataException. Where a name is there, only
    its value is replaced, which damages nothing.
    """
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    environment = manager.lookupDataSource(name).dataSourceCls().envVars()
    for variable, value in _OF_STREAMS.items():
        if variable not in environment:
            environment[variable] = value
