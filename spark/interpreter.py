"""Registers the data source in a session created by the program itself, with workers that run in this Python.

Spark starts its workers with the first `python3` on the path unless PYSPARK_PYTHON is set. A notebook's kernel often
runs in a virtual environment that is not activated: then that is another Python, with neither magnetar nor pyarrow, and
Spark only reports that it finds no such source.
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
    """Make ``format("magnetar")`` and ``format("pulsar")`` work in a session, and return it.

    Streams that the session starts afterwards are written to topics exactly once where their plan allows it.

    With a local master the workers run in this Python, unless PYSPARK_PYTHON or ``spark.pyspark.python`` names one. On
    a cluster its path may differ, so nothing is changed there.

    Args:
        spark: a session from `SparkSession.builder`; one from `open_session` does not need this.

    Raises:
        InvalidConfig: pandas or pyarrow is missing.
        SparkFailed: the workers run in a Python without magnetar; the message says which, and what to set.
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
    options = {"service.url": "pulsar://localhost:6650", "topic": "any"}  # the columns need no request
    try:
        spark.read.format(MagnetarSource.name()).options(**options).load().schema  # noqa: B018  evaluated by a worker
    except (PySparkException, Py4JError) as error:
        python = spark.conf.get(_PYTHON_OF_SQL, None) or named or "python3 of the path"
        raise SparkFailed(
            f"Spark's Python workers cannot load magnetar: they run in {python}, this is {sys.executable}; set"
            f" PYSPARK_PYTHON={sys.executable} before the session is made, or use magnetar.spark.open_session"
        ) from error
    watch_streams(spark)
    return spark
