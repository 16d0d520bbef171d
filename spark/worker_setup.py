"""PySpark's function that a Python worker places the files of a task with, as what other modules hang on to.

It is called when the task's context is known, and what the task is to call is still bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Setup = Callable[..., None]
_NAME = "setup_spark_files"


def wrap_setup(worker_util: Any, wrap: Callable[[Setup], Setup]) -> None:
    """Replace the function by what is made of it.

    Args:
        worker_util: PySpark's module that has it.
        wrap: makes another function of it; the arguments differ from version to version.
    """
    setup = wrap(getattr(worker_util, _NAME))
    setattr(worker_util, _NAME, setup)
    worker = sys.modules.get("pyspark.worker")  # which has it by name where it is imported already
    if worker is not None:
        setattr(worker, _NAME, setup)
