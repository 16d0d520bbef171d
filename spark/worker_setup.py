"""Wraps PySpark's function that sets up the files of a task in a Python worker, as a hook for other modules.

It is called when the task's context is known, and the function to call is still pickled.

In Spark 4.0, whose workers have TCP connections, a task waits 40 ms for its input: the JVM sends the task's
description, and because of Nagle's algorithm sends the input when that is acknowledged, which Linux delays in order to
combine the acknowledgement with a response.
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
    """Replace the function by a wrapper.

    Args:
        worker_util: PySpark's module that defines it.
        wrap: returns a wrapper of the function; its arguments differ from version to version.
    """
    setup = wrap(getattr(worker_util, _NAME))
    setattr(worker_util, _NAME, setup)
    worker = sys.modules.get("pyspark.worker")  # refers to it by name if already imported
    if worker is not None:
        setattr(worker, _NAME, setup)


def acknowledge_at_once(worker_util: Any) -> None:
    """Make each task of this Python worker acknowledge received data at once; takes PySpark's module."""
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
            # Only applies to data received so far, so setting it once would not be enough.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
