"""The main module of Spark's Python workers: PySpark's own worker, extended for our tasks."""

import contextlib
import runpy
from typing import IO

import pyspark.worker_util
from magnetar.spark import task_killer, task_libraries, worker_setup
from magnetar.spark.source import between_tasks
from pyspark.taskcontext import TaskContext

task_killer.install(TaskContext)
task_libraries.install(pyspark.worker_util)
worker_setup.acknowledge_at_once(pyspark.worker_util)
between_tasks.keep_archives()

if __name__ == "__main__":  # Spark is configured not to fork its workers, which connect differently in each version
    runpy.run_module("pyspark.worker", run_name="__main__", alter_sys=True)
else:
    from pyspark.worker import main as run_task

    def main(infile: IO[bytes], outfile: IO[bytes]) -> None:
        """Run a task; called by the daemon that forked this process."""
        try:
            run_task(infile, outfile)
        finally:
            with contextlib.suppress(OSError, ValueError):
                outfile.flush()  # send the response before collecting garbage
            between_tasks.freeze_imported(collect=True)

    __all__ = ["main"]
