"""The module that Spark runs in its Python workers: PySpark's own worker with the task killer installed."""

from magnetar.spark.task_killer import install
from pyspark.taskcontext import TaskContext
from pyspark.worker import main

install(TaskContext)

__all__ = ["main"]

if __name__ == "__main__":  # where Spark is told not to fork its workers
    from pyspark.worker import get_sock_file_to_executor

    with get_sock_file_to_executor() as executor:
        main(executor, executor)
