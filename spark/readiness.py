"""Checks whether this machine can run Spark functions, without starting anything."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..errors import InvalidConfig
from .java import find_java
from .session import reach_master
from .session_config import spark_master
from .source.requirements import READS_AND_WRITES, need

FREE_BYTES_MIN = 64 * 1024 * 1024
"""Less than this is soon full of what tasks exchange."""


def check_ready(master: str, environment: Mapping[str, str] | None = None, directory: Path | None = None) -> None:
    """Check the extra, a Java, the master, and the disk. Blocking: a silent master takes 5 s an address.

    Args:
        master: as `SessionConfig` takes it.
        environment: where Java is looked for; None is this process's.
        directory: where Spark writes; made if it is not there.

    Raises:
        InvalidConfig: something is not installed, the master is of an unknown kind, or there is no room.
        SparkFailed: no master answers.
    """
    need("pyspark", *READS_AND_WRITES)
    find_java(os.environ if environment is None else environment)
    spark_master(master)
    reach_master(master)
    if directory is not None:
        _check_room(directory)


def _check_room(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"\0")
        free = shutil.disk_usage(directory).free
    except OSError as error:
        why = "it is no directory" if isinstance(error, FileExistsError) else error.strerror or error
        raise InvalidConfig(
            f"Spark cannot write into {directory}: {why}; make that possible, or give the worker another data directory"
        ) from error
    if free < FREE_BYTES_MIN:
        raise InvalidConfig(
            f"{free // 1024**2} MB are free in {directory}, and Spark needs {FREE_BYTES_MIN // 1024**2} MB at least;"
            " make room, or give the worker another data directory"
        )
