"""A session that a program made itself, in a virtual environment that is not activated, as that of a notebook."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.spark.test_session import PROGRAM_S, java_of_the_machine, run_python
from tests.spark.topics import fill, numbered
from tests.support.servers import Server

NOT_ACTIVATED = """
import os, sys
from pyspark.sql import SparkSession
from magnetar.errors import SparkFailed
from magnetar.spark import enable

url = sys.argv[2]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.memory", "512m").getOrCreate()
try:
    spark.read.format("magnetar").option("service.url", url).load("notebook").count()
except Exception as error:
    print("without:", type(error).__name__)
os.environ["PYSPARK_PYTHON"] = "python3"
try:
    enable(spark)
except SparkFailed as error:
    print(error)
del os.environ["PYSPARK_PYTHON"]
print(enable(spark).read.format("magnetar").option("service.url", url).load("notebook").count())
print(spark.range(1).mapInArrow(lambda batches: batches, "id long").count())
print(spark.sparkContext.parallelize([1]).map(lambda _: sys.executable).first())
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(PROGRAM_S + 60)
def test_workers_run_in_the_python_of_the_program_or_an_error_says_which_they_run_in(
    cluster: Server, tmp_path: Path
) -> None:
    fill(cluster.service_url, "notebook", [numbered(5)])
    (tmp_path / "bin").mkdir()
    other = tmp_path / "bin" / "python3"
    other.write_text("#!/bin/sh\nexit 3\n")  # whatever Python the path has, it is not this one
    other.chmod(0o755)
    java = java_of_the_machine()
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "VIRTUAL_ENV", "SPARK_HOME")
    }
    environment |= {"PATH": f"{other.parent}:/usr/bin:/bin", "JAVA_HOME": str(java), "SPARK_LOCAL_IP": "127.0.0.1"}
    shown = run_python(NOT_ACTIVATED, tmp_path, cluster.service_url, environment=environment).splitlines()
    assert shown[0] == "without: Py4JJavaError"
    assert shown[1] == (
        f"Spark's Python workers cannot load magnetar: they run in python3, but this process runs in {sys.executable};"
        f" set PYSPARK_PYTHON={sys.executable} before creating the session, or use magnetar.spark.open_session"
    )
    assert shown[2:] == ["5", "1", sys.executable]
