"""The module that Spark runs in its Python workers: PySpark's own, with the task killer and libraries."""

import runpy

import pyspark.worker_util
from magnetar.spark import task_killer, task_libraries
from pyspark.taskcontext import TaskContext

task_killer.install(TaskContext)
task_libraries.install(pyspark.worker_util)

if (
    __name__ == "__main__"
):  # where Spark is told not to fork its workers; how they connect differs from version to version
    runpy.run_module("pyspark.worker", run_name="__main__", alter_sys=True)
else:
    from pyspark.worker import main

    __all__ = ["main"]
