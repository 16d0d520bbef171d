"""What a Python worker does between two tasks, made short.

PySpark's daemon runs a full garbage collection after each task, which visits every object of every module: 50 ms where
pandas is imported. Before each task, up to Spark 4.1, it has the import system forget what it knows, which reads the
directories of PySpark's zip archives anew: 40 ms. In Spark 4.0, whose workers have TCP connections, a task also waits
40 ms for its input: the JVM sends what the task is, and by Nagle's algorithm sends the input when that is acknowledged,
which Linux delays, as an answer could carry it. All that counts for small tasks, such as those of a stream.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import zipimport
from typing import Any
from weakref import WeakKeyDictionary

from .worker_setup import Setup, wrap_setup

_frozen_at = 0
"""Number of modules that were imported when they were frozen."""
_seen: WeakKeyDictionary[zipimport.zipimporter, tuple[int, int, int]] = WeakKeyDictionary()
"""What archives were like before importers read their directories; each package in an archive has one of its own."""
_read_again = zipimport.zipimporter.invalidate_caches


def shorten_pauses() -> None:
    """Do what can be done from within a task, where the worker is not one of `pyspark_magnetar`."""
    freeze_imported()
    keep_archives()


def freeze_imported(*, collect: bool = False) -> None:
    """Exclude what there is from garbage collections, if modules were imported since the last time.

    What is garbage later is collected as before, but for cycles of what there is now.

    Args:
        collect: collect garbage first.
    """
    global _frozen_at
    if len(sys.modules) == _frozen_at:
        return
    if collect:
        gc.collect()
    gc.freeze()
    _frozen_at = len(sys.modules)


def keep_archives() -> None:
    """Have directories of zip archives read anew when the file is another one, not whenever caches are invalidated."""
    setattr(zipimport.zipimporter, "invalidate_caches", _read_changed)  # noqa: B010


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


def _read_changed(importer: zipimport.zipimporter) -> None:
    """Read the directory of an archive anew if the file is another one."""
    try:
        status = os.stat(importer.archive)
    except OSError:
        _seen.pop(importer, None)
        _read_again(importer)
        return
    found = (status.st_ino, status.st_size, status.st_mtime_ns)
    if _seen.get(importer) != found:
        _seen[importer] = found
        _read_again(importer)
