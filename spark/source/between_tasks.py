"""Speeds up a Python worker between two tasks.

PySpark's daemon runs a full garbage collection after each task, which visits every object of every module and takes 50
ms if pandas is imported. Up to Spark 4.1, it also invalidates the import caches before each task, so that the
directories of PySpark's zip archives are reread, which takes 40 ms. Both matter for small tasks, such as those of
streams.
"""

from __future__ import annotations

import gc
import os
import sys
import zipimport
from weakref import WeakKeyDictionary

_frozen_at = 0
"""Number of modules imported at the last freeze."""
_seen: WeakKeyDictionary[zipimport.zipimporter, tuple[int, int, int]] = WeakKeyDictionary()
"""Archive file status at the time importers read the directories; each package in an archive has its own importer."""
_read_again = zipimport.zipimporter.invalidate_caches


def shorten_pauses() -> None:
    """Apply the optimizations that are possible within a task, unless the worker was started by `pyspark_magnetar`."""
    freeze_imported()
    keep_archives()


def freeze_imported(*, collect: bool = False) -> None:
    """Exclude existing objects from garbage collection if modules have been imported since the last call.

    Garbage created later is still collected, except for cycles of existing objects.

    Args:
        collect: whether to collect garbage first.
    """
    global _frozen_at
    if len(sys.modules) == _frozen_at:
        return
    if collect:
        gc.collect()
    gc.freeze()
    _frozen_at = len(sys.modules)


def keep_archives() -> None:
    """Reread zip archive directories only when the file has changed, instead of whenever caches are invalidated."""
    setattr(zipimport.zipimporter, "invalidate_caches", _read_changed)  # noqa: B010


def _read_changed(importer: zipimport.zipimporter) -> None:
    """Reread the directory of an archive if its file has changed."""
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
