"""Adds the requirements of a DataFrame function to the search path of the Python workers that run its tasks.

Design: each run has its own session, with a setting for the location of the requirements. Spark passes the settings of
a session to the tasks of its queries as local properties, regardless of the thread that starts them; jobs that are not
queries (of RDDs) have the property of the run's thread. A worker adds the directory to its search path before it
unpickles the function, which refers to modules in the directory. If tasks run on other machines, each executor receives
the directory once, as an archive that Spark unpacks, because modules with compiled code cannot be imported from a zip
file.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FunctionLoadError
from .worker_setup import Setup, wrap_setup

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

PROPERTY = "spark.magnetar.requirements"
"""Session setting and local property of the session's jobs: a function and the location of its requirements."""
_ARCHIVE = "magnetar-requirements-"
_CACHES = "__pycache__"


def for_tasks(context: SparkContext, function: str, libraries: Path, scratch: Path | None) -> str:
    """Make requirements available to tasks, and return a description of them for `announced`.

    Args:
        context: Spark context that runs the tasks.
        function: function name.
        libraries: directory on this machine where the requirements are installed, named after its content.
        scratch: directory for an archive of the requirements, which must exist as long as the context; None if all
            tasks run on this machine.
    """
    if scratch is None:
        return json.dumps({"function": function, "directory": str(libraries)})
    name = f"{_ARCHIVE}{libraries.name}"
    archive = scratch / f"{name}.zip"
    if not archive.exists():
        _write(archive, libraries)
    context.addArchive(f"{archive}#{name}")  # Spark ignores an archive that it already has
    return json.dumps({"function": function, "archive": name})


def _write(archive: Path, libraries: Path) -> None:
    number, fresh = tempfile.mkstemp(dir=archive.parent)
    with os.fdopen(number, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as target:
        for path in sorted(libraries.rglob("*")):
            if path.is_file() and _CACHES not in path.parts:
                target.write(path, path.relative_to(libraries).as_posix())
    os.rename(fresh, archive)  # renamed when complete, because two runs may need it concurrently


@contextlib.contextmanager
def announced(spark: SparkSession, text: str) -> Iterator[None]:
    """Announce requirements to the tasks of a session and of jobs started by this thread.

    Args:
        spark: a session that is used for only one function.
        text: result of `for_tasks`; empty without requirements.
    """
    if not text:
        yield
        return
    context = spark.sparkContext
    spark.conf.set(PROPERTY, text)
    context.setLocalProperty(PROPERTY, text)
    try:
        yield
    finally:
        context.setLocalProperty(PROPERTY, None)  # removes it


def install(worker_util: Any) -> None:
    """Make each task of this Python worker find its announced requirements. The argument is PySpark's worker module."""
    wrap_setup(worker_util, _with_requirements)


def _with_requirements(place_files: Setup) -> Setup:
    def setup(*arguments: Any, **named: Any) -> None:
        place_files(*arguments, **named)
        from pyspark.taskcontext import TaskContext

        context = TaskContext.get()
        text = None if context is None else context.getLocalProperty(PROPERTY)
        if text:
            put_in_place(text)

    return setup


def put_in_place(text: str) -> None:
    """Add the requirements of a function to the search path of this process.

    Raises:
        FunctionLoadError: the requirements are not on this machine, or another version of one of them is loaded.
    """
    from ..instance.loading.libraries import LIBRARIES

    record = json.loads(text)
    function = record["function"]
    directory = _unpacked(record["archive"]) if "archive" in record else Path(record["directory"])
    if not directory.is_dir():
        raise FunctionLoadError(
            f"the requirements of function {function} are not in {directory}: trigger the function again, or run"
            " functions restart"
        )
    if not LIBRARIES.has(function, directory):
        # The driver has checked that current functions are compatible, so other functions here are outdated.
        LIBRARIES.use(function, directory, displaces=True)


def _unpacked(name: str) -> Path:
    """Return the directory to which Spark unpacked an archive of the context, also in sessions with their own files."""
    from pyspark import SparkFiles

    root = Path(SparkFiles.getRootDirectory()).absolute()
    return next((path for path in (root / name, root.parent / name) if path.is_dir()), root / name)
