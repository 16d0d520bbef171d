"""The daemon from which Spark forks its Python workers: PySpark's own daemon with our tasks' imports preloaded.

Forked workers start their tasks without importing anything and share the memory of the modules. None of these modules
starts a thread on import, which would make forking unsafe.
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
