"""PySpark's function that a Python worker places the files of a task with, as what other modules hang on to.

It is called when the task's context is known, and what the task is to call is still bytes.

In Spark 4.0, whose workers have TCP connections, a task waits 40 ms for its input: the JVM sends what the task is, and
by Nagle's algorithm sends the input when that is acknowledged, which Linux delays, as an answer could carry it.
"""

from __future__ import annotations

import contextlib
import os
import socket
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


def acknowledge_at_once(worker_util: Any) -> None:
    """Have each task of this Python worker acknowledge what has come of it; takes PySpark's module."""
    wrap_setup(worker_util, _acknowledging)


def _acknowledging(place_files: Setup) -> Setup:
    def setup(*arguments: Any, **named: Any) -> None:
        if arguments and hasattr(arguments[0], "fileno"):  # the connection, up to Spark 4.2
            _acknowledge(arguments[0].fileno())
        place_files(*arguments, **named)

    return setup


def _acknowledge(number: int) -> None:
    if not hasattr(socket, "TCP_QUICKACK"):
        return
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            # Holds for what has come already, not for what will come, so once would not be enough.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
