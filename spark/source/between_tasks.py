"""Speeds up a Python worker between two tasks.

PySpark's daemon runs a full garbage collection after each task, which visits every object of every module: 50 ms if
pandas is imported. Before each task, up to Spark 4.1, it also invalidates the import caches, which rereads the
directories of PySpark's zip archives: 40 ms. Both matter for small tasks, such as those of a stream.
"""

from __future__ import annotations

import gc
import os
import sys
import zipimport
from weakref import WeakKeyDictionary

_frozen_at = 0
"""Number of imported modules at the last freeze."""
_seen: WeakKeyDictionary[zipimport.zipimporter, tuple[int, int, int]] = WeakKeyDictionary()
"""State of archives when importers read their directories; each package in an archive has its own importer."""
_read_again = zipimport.zipimporter.invalidate_caches


def shorten_pauses() -> None:
    """Apply the optimisations that are possible from within a task, if the worker is not one of `pyspark_magnetar`."""
    freeze_imported()
    keep_archives()


def freeze_imported(*, collect: bool = False) -> None:
    """Exclude existing objects from garbage collection, if modules were imported since the last time.

    Later garbage is collected as before, except cycles of objects that exist now.

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
    """Make zip archive directories be reread only when the file has changed, not whenever caches are invalidated."""
    setattr(zipimport.zipimporter, "invalidate_caches", _read_changed)  # noqa: B010


def _read_changed(importer: zipimport.zipimporter) -> None:
    """Reread the directory of an archive if the file has changed."""
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
