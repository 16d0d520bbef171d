"""Registers the data source in an existing session, and makes its workers run in this Python.

Spark starts its workers with the first `python3` on the path unless PYSPARK_PYTHON is set. A notebook kernel often runs
in a virtual environment that is not activated. The workers then run in another Python without magnetar and pyarrow, and
Spark only reports that it cannot find the data source.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ..errors import SparkFailed
from .source.requirements import READS_AND_WRITES, need
from .spark_version import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PYTHON_OF_SQL = "spark.sql.execution.pyspark.python"


def enable(spark: SparkSession) -> SparkSession:
    """Make ``format("magnetar")`` and ``format("pulsar")`` work in a session, and return the session.

    Streams started in the session afterwards are written to topics exactly once if their plan allows it.

    With a local master, the workers run in this Python unless PYSPARK_PYTHON or ``spark.pyspark.python`` is set. On a
    cluster the path may differ, so the setting is left unchanged.

    Args:
        spark: a session from `SparkSession.builder`. Sessions from `open_session` are already enabled.

    Raises:
        InvalidConfig: pandas or pyarrow is missing.
        SparkFailed: the workers run in a Python without magnetar; the message names that Python and the setting to
            change.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from .source.source import MagnetarSource, PulsarSource
    from .stream_plans import watch_streams

    need("pyspark", *READS_AND_WRITES)
    context = spark.sparkContext
    named = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if not named and context.master.startswith("local"):
        context.pythonExec = sys.executable
        spark.conf.set(_PYTHON_OF_SQL, sys.executable)
    for source in (MagnetarSource, PulsarSource):
        register(spark, source)
    options = {"service.url": "pulsar://localhost:6650", "topic": "any"}  # reading the columns requires no request
    try:
        spark.read.format(MagnetarSource.name()).options(**options).load().schema  # noqa: B018  makes a worker load the source
    except (PySparkException, Py4JError) as error:
        python = spark.conf.get(_PYTHON_OF_SQL, None) or named or "python3 from PATH"
        raise SparkFailed(
            f"Spark's Python workers cannot load magnetar: they run in {python}, but this process "
            f"runs in {sys.executable}; set PYSPARK_PYTHON={sys.executable} before creating the "
            "session, or use magnetar.spark.open_session"
        ) from error
    watch_streams(spark)
    return spark
