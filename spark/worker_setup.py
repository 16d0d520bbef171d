"""Wraps the PySpark function that sets up a task's files in a Python worker, as a hook for other modules.

PySpark calls this function when the task's context is known but the user function is still pickled.

In Spark 4.0, whose workers use TCP connections, a task waits 40 ms for its input: because of Nagle's algorithm, the JVM
sends the input only after the task's description is acknowledged, and Linux delays the acknowledgement to combine it
with a response.
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
    """Replace the function with a wrapper.

    Args:
        worker_util: PySpark module that defines the function.
        wrap: returns a wrapper of the function, whose arguments differ between versions.
    """
    setup = wrap(getattr(worker_util, _NAME))
    setattr(worker_util, _NAME, setup)
    worker = sys.modules.get("pyspark.worker")  # replace the reference in the worker module if it is already imported
    if worker is not None:
        setattr(worker, _NAME, setup)


def acknowledge_at_once(worker_util: Any) -> None:
    """Make each task of this Python worker acknowledge received data immediately; takes PySpark's worker module."""
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
            # The option only applies to data received so far, so setting it once is not enough.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
