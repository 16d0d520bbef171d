"""Builds the class archive for Spark's JVM: `python -m magnetar.spark.build_class_archive`.

Building takes about half a minute. The process that hosts Spark functions runs this module if its JVM had to start
without an archive.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import MagnetarError, SparkFailed
from .class_archive import ClassArchive, archive_directory
from .java import find_java
from .session import SCRATCH_PREFIX, Session, abandon, first_line, need_spark, open_session, spark_jars
from .session_config import SessionConfig

DUMP_TIMEOUT_S = 120.0
BACKGROUND = "background"
PROGRAM = (sys.executable, "-P", "-m", "magnetar.spark.build_class_archive", BACKGROUND)
"""Command that builds the archive at the lowest priority, and exits when the thread that started it ends."""
_NICENESS = 19
_PR_SET_PDEATHSIG = 1


def build(environment: Mapping[str, str]) -> Path | None:
    """Build the archive for this machine's Java and Spark, and return its path; None if another process is building it.

    Blocks for about half a minute, while a JVM with a heap of 512 MB and a Python worker are running.

    Raises:
        MagnetarError: Java, Spark or a directory is missing, or the JVM did not write an archive.
    """
    need_spark()
    java, jars = find_java(environment), spark_jars()
    directory = archive_directory(environment)
    if directory is None:
        raise SparkFailed("no directory for the class archive: set HOME or XDG_CACHE_HOME")
    try:
        archive = ClassArchive.of(directory, java, jars)
        with archive.building() as path, tempfile.TemporaryDirectory(prefix="magnetar-classes-") as scratch:
            if path is not None:
                _run_training(path, Path(scratch), environment)
        found = archive.file()
    except OSError as error:
        raise SparkFailed(f"cannot create the class archive in {directory}: {error}") from error
    if found is None and path is not None:
        raise SparkFailed(f"the JVM in {java.home} did not write a class archive: Spark starts more slowly without one")
    return found


def _run_training(path: Path, scratch: Path, environment: Mapping[str, str]) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    config = SessionConfig(
        directory=scratch,
        master="local[1]",
        heap="512m",
        log_file=scratch / "jvm.log",
        class_archive=False,
        progress=False,
        jvm_options=(f"-XX:ArchiveClassesAtExit={path}", "-Xlog:cds*=off"),
    )
    session = None
    try:
        session = open_session(config, environment)
        _train(session)
        session.stop(DUMP_TIMEOUT_S)
    except BaseException as error:
        reason = first_line(error)  # requires a running JVM
        for left in scratch.glob(f"{SCRATCH_PREFIX}*"):  # also if the JVM has just started
            abandon(left)  # a JVM that exits normally would write the archive first
        if session is not None:
            session.stop()
        if isinstance(error, (Py4JError, PySparkException)):
            raise SparkFailed(f"cannot build the class archive: {reason}") from error
        raise


def _train(session: Session) -> None:
    """Make the JVM load the classes for message functions and for reading and writing topics, without using a topic."""
    from pyspark import AccumulatorParam

    from .training_source import TrainingSource

    class Listing(AccumulatorParam[list[int]]):
        def zero(self, value: list[int]) -> list[int]:
            return []

        def addInPlace(self, value1: list[int], value2: list[int]) -> list[int]:
            return value1 + value2

    context, spark = session.context, session.spark
    shared = context.broadcast(b"")
    results = context.accumulator([], Listing())

    def work(numbers: Any) -> None:
        for number in numbers:
            results.add([number + len(shared.value)])

    context.parallelize(range(2), 2).foreachPartition(work)
    spark.dataSource.register(TrainingSource)
    frame = spark.read.format(TrainingSource.name()).load()
    frame.count()
    mapped = frame.mapInArrow(lambda batches: batches, frame.schema)
    mapped.groupBy("value").count().orderBy("value").collect()
    mapped.write.format("noop").mode("append").save()


def _end_with_parent() -> None:
    """Make the kernel kill this process, and with it the JVM, when the thread that started it ends."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _end(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second signal would interrupt the JVM's shutdown
    sys.exit(1)


def main() -> int:
    """Build the archive; with the argument `BACKGROUND`, at the lowest priority and only while the parent runs."""
    signal.signal(signal.SIGTERM, _end)
    if BACKGROUND in sys.argv[1:]:
        _end_with_parent()
        os.nice(_NICENESS)
    try:
        found = build(os.environ)
    except MagnetarError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{found if found is not None else 'another process is building the archive'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
