"""Starts a Spark session: the JVM by ourselves, so that every Java works, with settings for short jobs over topics.

Design: PySpark's own way is a shell script that starts a JVM that prints the command of the JVM. Starting the last one
directly saves a second or two, needs no shell, and lets `java` leave out what the Java lacks. The JVM ends with the
pipe that is its standard input, so it never outlives this process, however that ends. PySpark keeps its gateway in
class attributes: there is one session per process, and `open_session` refuses a second.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidConfig, SparkFailed
from .cluster import ClusterWatch, is_cluster
from .java import Java, find_java, module_options
from .source.requirements import READS_AND_WRITES, need
from .task_killer import WORKER_MODULE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0
MASTER_TIMEOUT_S = 5.0
TASK_ATTEMPTS = 4
"""How often a task is tried in local mode; Spark's own default there is once."""
_SCRATCH_PREFIX = "driver-"
_TEMPORARY = "tmp"
_TEMPORARY_PREFIX = "magnetar-spark-"
_POLL_S = 0.02
_OPENING = threading.Lock()

SETTINGS = {
    # The default manager starts `readlink` and `chmod` some twenty times per micro-batch: 60 ms. For paths of a file
    # system; give another one for checkpoints in an object store.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Over TCP every job waits once for 40 ms.
    "spark.python.unix.domain.socket.enabled": "true",
    # A short job does not wait behind a long one.
    "spark.scheduler.mode": "FAIR",
    "spark.python.worker.module": WORKER_MODULE,
    # Two attempts of one task at a time would fight for one producer name.
    "spark.speculation": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What differs from Spark's defaults, and why."""
CLUSTER_SETTINGS = {
    # A driver takes all cores of a standalone cluster, and keeps them while it waits for work: another one would wait
    # for ever. So executors are given back when there is nothing to do.
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": "20s",
    # What a DataFrame function left behind is not needed after its run; without a limit it holds executors for ever.
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "60s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "60s",
}
"""What differs beside on a standalone cluster."""
_TOO_LATE = "the JVM of the driver is started before settings are read; remove it"
_NOT_SETTINGS = {
    "spark.master": "the master is given beside the settings",
    "spark.driver.memory": "the heap is given beside the settings",
    "spark.driver.extraJavaOptions": _TOO_LATE,
    "spark.driver.defaultJavaOptions": _TOO_LATE,
    "spark.driver.extraClassPath": _TOO_LATE,
    "spark.driver.extraLibraryPath": _TOO_LATE,
    "spark.pyspark.driver.python": "this process is the driver; remove it",
    "spark.submit.deployMode": "this process is the driver; remove it",
    "spark.jars.packages": "nothing fetches packages here; put jars there and name them in spark.jars",
}
"""What would have no effect, with the way that has."""


@dataclass(frozen=True, kw_only=True)
class SessionConfig:
    """How a session is started.

    Attributes:
        directory: for everything that Spark writes beside results; what dead drivers left there is removed.
        master: ``local``, ``local[N]``, ``local[*]`` or ``spark://host:port``.
        app_name: shown by Spark.
        heap: of the driver's JVM, as ``-Xmx`` takes it.
        driver_host: where executors of a cluster reach this process.
        python: the interpreter of the executors, unless settings name one as ``spark.pyspark.python``; it must have
            magnetar and the extra ``spark``.
        settings: of Spark; they win over ours.
        log_file: what the JVM says; None leaves it on standard error.
    """

    directory: Path
    master: str = "local[*]"
    app_name: str = "magnetar"
    heap: str = "1g"
    driver_host: str = "127.0.0.1"
    python: str = sys.executable
    settings: Mapping[str, str] = field(default_factory=dict)
    log_file: Path | None = None

    def __post_init__(self) -> None:
        spark_master(self.master)
        if not re.fullmatch(r"\d+[kmgKMG]", self.heap):
            raise InvalidConfig(f"heap={self.heap!r} is no size of a Java heap; for example 512m or 2g")
        for name in self.settings:
            if not name.startswith("spark."):
                raise InvalidConfig(f"{name!r} is no setting of Spark: their names begin with spark.")
            if (remedy := _NOT_SETTINGS.get(name)) is not None:
                raise InvalidConfig(f"{name} cannot be set so; {remedy}")


def spark_master(master: str) -> str:
    """Return the master as Spark is told; a local one tries each task `TASK_ATTEMPTS` times.

    Raises:
        InvalidConfig: it is neither local nor a standalone cluster.
    """
    local = re.fullmatch(r"local(?:\[(\*|[1-9]\d*)\])?", master)
    if local:
        return f"local[{local[1] or 1},{TASK_ATTEMPTS}]"
    if re.fullmatch(r"local(-cluster)?\[(\*|[1-9]\d*)( *, *\d+)+\]", master) or re.fullmatch(
        r"spark://[^/,:]+:\d+(,[^/,:]+:\d+)*", master
    ):
        return master
    raise InvalidConfig(f"Spark master {master!r} is not supported; give local[N], local[*] or spark://host:port")


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
            self._cluster = ClusterWatch(spark.sparkContext, lambda: _end(process))

    @property
    def pid(self) -> int:
        """Of the JVM."""
        return self._process.pid

    def waits_for(self) -> str:
        """Return in one line why a cluster gives no executors; empty if it does, or all runs here."""
        return "" if self._cluster is None else self._cluster.reason()

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
            _end(self._process)
            _remove(self._scratch)

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
    """Make sure that somebody listens where a cluster's master should be: Spark itself would try for a minute.

    Raises:
        SparkFailed: nobody does.
    """
    if not master.startswith("spark://"):
        return
    failures = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), MASTER_TIMEOUT_S).close()
        except OSError as error:
            failures.append(f"{address}: {error}")
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
    scratch = _scratch(config.directory)
    environment["PYSPARK_PYTHON"] = python = config.settings.get("spark.pyspark.python", config.python)
    process, port, secret = _start_gateway(config, java, environment, scratch)
    try:
        conf = SparkConf(loadDefaults=False)
        conf.setMaster(spark_master(config.master)).setAppName(config.app_name)
        for key, value in {**_settings(config, scratch), **config.settings}.items():
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
        _end(process)
        _remove(scratch)
        if isinstance(error, (Py4JError, OSError)):
            raise SparkFailed(f"no session with master {config.master}: {told}") from error
        raise


def _settings(config: SessionConfig, scratch: Path) -> dict[str, str]:
    return {
        **SETTINGS,
        **(CLUSTER_SETTINGS if is_cluster(config.master) else {}),
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(config.directory / "warehouse"),
        "spark.driver.host": config.driver_host,
        "spark.driver.bindAddress": config.driver_host,
    }


def _start_gateway(
    config: SessionConfig, java: Java, environment: dict[str, str], scratch: Path
) -> tuple[subprocess.Popen[bytes], int, str]:
    """Start the JVM; return its process, and port and secret of the way into it."""
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
        _end(process)
        _remove(scratch)
        raise
    port, length = struct.unpack_from(">ii", data)
    return process, port, data[8 : 8 + length].decode()


@contextlib.contextmanager
def _environ(**values: str) -> Iterator[None]:
    """Have this process's environment hold ``values`` for a moment: PySpark reads some things nowhere else."""
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


def _scratch(directory: Path) -> Path:
    """Return a new folder for one driver, and remove those of drivers that are gone."""
    directory.mkdir(parents=True, exist_ok=True)
    sweep(directory)
    scratch = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH_PREFIX}{os.getpid()}-", dir=directory))
    # The JVM's own temporary files: a killed one leaves them. Not below the scratch, whose name may be too long for the
    # Unix sockets that Spark makes there; the link is how they are found again.
    (scratch / _TEMPORARY).symlink_to(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX))
    return scratch


def _remove(scratch: Path) -> None:
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
            _remove(left)


def _end(process: subprocess.Popen[bytes]) -> None:
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


def _first_line(error: BaseException) -> str:
    """Return what an error of the JVM says, without its stack."""
    cause: Any = getattr(error, "java_exception", None)
    lines = str(error if cause is None else cause.toString()).strip().splitlines()
    return lines[0] if lines else type(error).__name__
