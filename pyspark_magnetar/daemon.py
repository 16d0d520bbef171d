"""The module that Spark forks its Python workers from: PySpark's own daemon, with our tasks' imports preloaded.

A forked worker starts its task at once, and shares the memory of the modules. None of them starts a thread on import,
which would make forking unsafe.
"""

import magnetar.spark.jobs.message_job
import magnetar.spark.jobs.range_task
import magnetar.spark.task_killer
import magnetar.spark.task_libraries
import pyspark.worker
from magnetar.spark.source import between_tasks
from pyspark.daemon import manager

IMPORTED = (
    magnetar.spark.jobs.message_job,
    magnetar.spark.jobs.range_task,
    magnetar.spark.task_killer,
    magnetar.spark.task_libraries,
    pyspark.worker,
)

if __name__ == "__main__":
    between_tasks.freeze_imported(collect=True)
    manager()
