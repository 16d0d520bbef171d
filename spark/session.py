"""Starts a Spark session: the JVM by ourselves, so that every Java works, with settings for short jobs over topics.

PySpark keeps its gateway in class attributes: there is one session per process, and `open_session` refuses a second.

Design: PySpark's own way is a shell script that starts a JVM that prints the command of the JVM. Starting the last one
directly saves a second or two, needs no shell, and lets `java` leave out what the Java lacks. The JVM ends with the
pipe that is its standard input, so it never outlives this process, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidConfig, SparkFailed
from .cluster import ClusterWatch, is_cluster, masters_of
from .java import Java, find_java, module_options
from .session_config import SessionConfig, spark_master, spark_settings
from .source.requirements import READS_AND_WRITES, need

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Session", "SessionConfig", "check_ready", "open_session"]

FREE_BYTES_MIN = 64 * 1024 * 1024
"""Less than this is soon full of what tasks exchange."""
MASTER_TIMEOUT_S = 5.0
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0
_SCRATCH_PREFIX = "driver-"
_TEMPORARY = "tmp"
_TEMPORARY_PREFIX = "magnetar-spark-"
_POLL_S = 0.02
_OPENING = threading.Lock()


class Session:
    """A running session; made by `open_session`.

    Attributes:
        spark: the session, with the data source ``magnetar`` registered.
        java: which Java runs it.
    """

    def __init__(self, spark: SparkSession, java: Java, process: subprocess.Popen[bytes], scratch: Path):
        self.spark = spark
        self.java = java
        self._process = process
        self._scratch = scratch
        self._cluster: ClusterWatch | None = None
        if is_cluster(spark.sparkContext.master):
            # A driver that the cluster has given up can do no more; whoever waits for the JVM's end learns it so.
            self._cluster = ClusterWatch(spark.sparkContext, lambda: end_jvm(process))

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        return self._process.pid

    def waits_for(self) -> str:
        """Return in one line why a cluster gives no executors; empty if it does, or all runs here."""
        return "" if self._cluster is None else self._cluster.reason

    def stop(self) -> None:
        """End the session and its JVM; within `STOP_TIMEOUT_S` in any case."""
        from py4j.protocol import Py4JError
        from pyspark import SparkContext

        if self._cluster is not None:
            self._cluster.close()
        try:
            # A JVM that died already cannot be asked; what it left is removed all the same.
            with contextlib.suppress(Py4JError, OSError):
                self.spark.stop()
            gateway = SparkContext._gateway
            if gateway is not None:
                with contextlib.suppress(Py4JError, OSError):
                    gateway.shutdown()
            SparkContext._gateway = SparkContext._jvm = None
        finally:
            end_jvm(self._process)
            remove_scratch(self._scratch)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def open_session(config: SessionConfig, environment: Mapping[str, str] | None = None) -> Session:
    """Start a JVM and a session in it.

    Args:
        config: how.
        environment: of the JVM, and where Java is looked for; None is this process's.

    Raises:
        InvalidConfig: there is no Java, or pyspark and pyarrow are not installed.
        SparkFailed: the JVM or the session did not start.
    """
    need("pyspark", *READS_AND_WRITES)
    environment = dict(os.environ if environment is None else environment)
    java = find_java(environment)
    reach_master(config.master)
    with _OPENING:
        return _open(config, java, environment)


def reach_master(master: str) -> None:
    """Check that a cluster's master listens: Spark itself would try for a minute.

    Raises:
        SparkFailed: nobody does.
    """
    if not is_cluster(master):
        return
    failures = []
    for host, port in masters_of(master):
        try:
            socket.create_connection((host, port), MASTER_TIMEOUT_S).close()
        except OSError as error:
            failures.append(f"{host}:{port}: {error}")
        else:
            return
    raise SparkFailed(f"no Spark master answers ({'; '.join(failures)}); start it, or correct {master}")


def _open(config: SessionConfig, java: Java, environment: dict[str, str]) -> Session:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from .source.source import MagnetarSource

    if SparkContext._gateway is not None:
        raise SparkFailed("this process has a Spark session already; stop it, or use that one")
    scratch = make_scratch(config.directory)
    environment["PYSPARK_PYTHON"] = python = config.settings.get("spark.pyspark.python", config.python)
    process, port, secret = start_jvm(config, java, environment, scratch)
    try:
        conf = SparkConf(loadDefaults=False)
        conf.setMaster(spark_master(config.master)).setAppName(config.app_name)
        for key, value in spark_settings(config, scratch).items():
            conf.set(key, value)
        with _environ(PYSPARK_PYTHON=python, PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
            context = SparkContext.getOrCreate(conf)
        context.setLogLevel("ERROR")
        spark = SparkSession(context)
        spark.dataSource.register(MagnetarSource)
        return Session(spark, java, process, scratch)
    except BaseException as error:
        told = _first_line(error)  # the JVM has to live to tell
        SparkContext._gateway = SparkContext._jvm = None
        SparkContext._active_spark_context = None
        end_jvm(process)
        remove_scratch(scratch)
        if isinstance(error, (Py4JError, OSError)):
            raise SparkFailed(f"no session with master {config.master}: {told}") from error
        raise


@contextlib.contextmanager
def _environ(**values: str) -> Iterator[None]:
    """Set environment variables of this process for a moment: PySpark reads some settings nowhere else."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _first_line(error: BaseException) -> str:
    """Return what an error of the JVM says, without its stack."""
    cause: Any = getattr(error, "java_exception", None)
    lines = str(error if cause is None else cause.toString()).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def start_jvm(
    config: SessionConfig, java: Java, environment: dict[str, str], scratch: Path
) -> tuple[subprocess.Popen[bytes], int, str]:
    """Start the JVM of a driver; return its process, and the port and the secret of its Py4J gateway.

    Raises:
        SparkFailed: it ended, or was not ready in time.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    answer = scratch / "gateway"
    command = [
        str(java.binary),
        *module_options(java, home / "jars"),
        f"-Xmx{config.heap}",
        f"-Djava.io.tmpdir={(scratch / _TEMPORARY).readlink()}",
        "-cp",
        f"{home / 'conf'}:{home / 'jars'}/*",
        "org.apache.spark.deploy.SparkSubmit",
        "pyspark-shell",
    ]
    # Without it Spark looks up the machine's name, and does not start where that has no address.
    environment.setdefault("SPARK_LOCAL_IP", config.driver_host)
    environment |= {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer), "SPARK_HOME": str(home), "SPARK_CONNECT_MODE": "0"}
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(config.log_file.open("ab")) if config.log_file is not None else None
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        # Spark renames the finished file to its name: once there, it is complete.
        while not answer.exists():
            if process.poll() is not None:
                raise SparkFailed(
                    f"the JVM of {java.home} (from {java.origin}) ended at its start with {process.returncode};"
                    f" {'its standard error' if config.log_file is None else config.log_file} says why"
                )
            if time.monotonic() > deadline:
                raise SparkFailed(f"the JVM of {java.home} was not ready within {START_TIMEOUT_S:g} s")
            time.sleep(_POLL_S)
        data = answer.read_bytes()
    except BaseException:
        end_jvm(process)
        remove_scratch(scratch)
        raise
    port, length = struct.unpack_from(">ii", data)
    return process, port, data[8 : 8 + length].decode()


def make_scratch(directory: Path) -> Path:
    """Return a new folder for one driver, and remove those of drivers that are gone."""
    directory.mkdir(parents=True, exist_ok=True)
    sweep(directory)
    scratch = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH_PREFIX}{os.getpid()}-", dir=directory))
    # The JVM's own temporary files: a killed one leaves them. Not below the scratch, whose name may be too long for the
    # Unix sockets that Spark makes there; the link is how they are found again.
    (scratch / _TEMPORARY).symlink_to(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX))
    return scratch


def remove_scratch(scratch: Path) -> None:
    """Remove the folder of a driver, and the temporary files of its JVM."""
    with contextlib.suppress(OSError):
        temporary = (scratch / _TEMPORARY).readlink()
        if temporary.name.startswith(_TEMPORARY_PREFIX):
            shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(scratch, ignore_errors=True)


def sweep(directory: Path) -> None:
    """Remove what drivers that are gone left in the directory of their sessions."""
    for left in directory.glob(f"{_SCRATCH_PREFIX}*"):
        pid = left.name[len(_SCRATCH_PREFIX) :].partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            remove_scratch(left)


def end_jvm(process: subprocess.Popen[bytes]) -> None:
    """Close the JVM's standard input, which ends it; kill it when it does not."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


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
