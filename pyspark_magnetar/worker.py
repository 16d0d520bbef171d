"""The module that Spark runs in its Python workers: PySpark's own worker with the task killer installed."""

import runpy

from magnetar.spark.task_killer import install
from pyspark.taskcontext import TaskContext

install(TaskContext)

if (
    __name__ == "__main__"
):  # where Spark is told not to fork its workers; how they connect differs from version to version
    runpy.run_module("pyspark.worker", run_name="__main__", alter_sys=True)
else:
    from pyspark.worker import main

    __all__ = ["main"]
