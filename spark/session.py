"""Starts a Spark session with its own JVM, which works with any Java, and with settings for short jobs over topics.

PySpark keeps its gateway in class attributes, so there is only one session per process; `open_session` rejects a
second.

Design: PySpark itself runs a shell script, which starts a JVM, which prints the command for the actual JVM. Starting
that JVM directly saves a second or two, does not need a shell, and makes it possible to omit options that the Java does
not support. The JVM exits when its standard input, a pipe, is closed, so it never outlives this process, however that
ends.
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..errors import InvalidConfig, SparkFailed
from .class_archive import ClassArchive, archive_directory
from .cluster import HADOOP_VARIABLES, YARN, ClusterWatch, is_cluster, is_managed, masters_of
from .java import Java, find_java, module_options
from .session_config import SessionConfig, spark_master, spark_settings
from .source.requirements import READS_AND_WRITES, need
from .spark_version import register

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from .job_progress import JobProgress

__all__ = ["Session", "SessionConfig", "check_ready", "open_session"]

FREE_BYTES_MIN = 64 * 1024 * 1024
"""Minimum free disk space; less would soon be filled by data exchanged between tasks."""
MASTER_TIMEOUT_S = 5.0
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0
SCRATCH_PREFIX = "driver-"
_TEMPORARY = "tmp"
_TEMPORARY_PREFIX = "magnetar-spark-"
_POLL_S = 0.02
_OPENING = threading.Lock()


class Jvm(NamedTuple):
    """A JVM with its gateway and the directory of its files."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str
    scratch: Path
    has_archive: bool


class Session:
    """A running session, created by `open_session`.

    Attributes:
        context: Spark context, for jobs without SQL.
        java: Java that runs the JVM.
        has_archive: whether the JVM was started from the class archive.
        scratch: directory of the session's files, removed with the session.
    """

    def __init__(self, context: SparkContext, java: Java, jvm: Jvm):
        self.context = context
        self.java = java
        self.has_archive = jvm.has_archive
        process = jvm.process
        self._spark: SparkSession | None = None
        self._making = threading.Lock()
        self._process = process
        self.scratch = jvm.scratch
        self._progress: JobProgress | None = None
        self._cluster: ClusterWatch | None = None
        if is_cluster(context.master):
            # A driver removed by the cluster cannot continue; ending the JVM notifies all waiting code.
            self._cluster = ClusterWatch(context, lambda: end_jvm(process))

    @property
    def spark(self) -> SparkSession:
        """SQL session with the data source ``magnetar``, alias ``pulsar``; created on first access.

        The JVM takes seconds to load the classes for SQL, which message functions do not need.

        Raises:
            SparkFailed: the JVM cannot create the session.
        """
        from py4j.protocol import Py4JError
        from pyspark.sql import SparkSession

        from .source.source import MagnetarSource, PulsarSource
        from .stream_plans import watch_streams

        with self._making:
            if self._spark is None:
                try:
                    spark = SparkSession(self.context)
                    for source in (MagnetarSource, PulsarSource):
                        register(spark, source)
                    watch_streams(spark)
                except (Py4JError, OSError) as error:
                    raise SparkFailed(
                        f"cannot open a session with master {self.context.master}: "
                        f"{first_line(error)}; see the JVM's log"
                    ) from error
                self._spark = spark
            return self._spark

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        return self._process.pid

    def waits_for(self) -> str:
        """Return a one-line reason why a cluster provides no executors; empty if it does, or in local mode."""
        return "" if self._cluster is None else self._cluster.reason

    def warm_up(self, *, with_sql: bool) -> None:
        """Start the Python workers and, with ``with_sql``, create `spark`, so that the first job starts faster.

        Raises:
            Py4JError, SparkFailed: the JVM failed.
        """
        if not is_cluster(self.context.master):  # executors are requested only when needed
            cores = self.context.defaultParallelism
            self.context.parallelize(range(cores), cores).foreachPartition(lambda _: None)
        if with_sql:
            self.spark  # noqa: B018  creates the session

    def show_progress(self, wanted: Literal["auto"] | bool) -> None:
        """Start showing the progress of jobs according to `SessionConfig.progress`."""
        from .job_progress import JobProgress, place_for

        place = place_for(wanted)
        if place is not None and self._progress is None:
            self._progress = JobProgress(self.context.statusTracker(), place).start()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End the session and its JVM within ``timeout_s``."""
        from py4j.protocol import Py4JError
        from pyspark import SparkContext

        if self._cluster is not None:
            self._cluster.close()
        if self._progress is not None:
            self._progress.close()
        try:
            # A dead JVM cannot stop the session, but its files are still removed.
            with contextlib.suppress(Py4JError, OSError):
                (self._spark or self.context).stop()
            gateway = SparkContext._gateway
            if gateway is not None:
                with contextlib.suppress(Py4JError, OSError):
                    gateway.shutdown()
            SparkContext._gateway = SparkContext._jvm = None
        finally:
            end_jvm(self._process, timeout_s)
            remove_scratch(self.scratch)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            keep_text(error)
        self.stop()


def open_session(
    config: SessionConfig, environment: Mapping[str, str] | None = None, *, with_sql: bool = True
) -> Session:
    """Start a JVM and a session in it.

    Args:
        config: session configuration.
        environment: environment of the JVM, also used to find Java; None for this process's environment.
        with_sql: create `Session.spark` immediately instead of on first access.

    Raises:
        InvalidConfig: Java, pyspark or pyarrow is not installed.
        SparkFailed: the JVM or the session did not start.
    """
    need_spark()
    environment = dict(os.environ if environment is None else environment)
    java = find_java(environment)
    need_configuration(config.master, environment)
    reach_master(config.master)
    with _OPENING:
        session = _open(config, java, environment)
    if with_sql:
        try:
            session.spark  # noqa: B018  creates the session
        except BaseException:
            session.stop(0)
            raise
    if config.progress is not False and not config.has_own_bar():
        session.show_progress(config.progress)
    return session


def need_spark() -> None:
    """Raise InvalidConfig unless Spark and the libraries for reading and writing are installed."""
    need("pyspark", *READS_AND_WRITES)


def spark_jars() -> Path:
    """Return the jar directory of the installed Spark."""
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def need_configuration(master: str, environment: Mapping[str, str]) -> list[str]:
    """Return the Hadoop configuration directories named in an environment; YARN requires one.

    Raises:
        InvalidConfig: the master is YARN and no directory exists.
    """
    found = [environment[name] for name in HADOOP_VARIABLES if environment.get(name)]
    if master == YARN and not any(Path(path).is_dir() for path in found):
        raise InvalidConfig(
            f"no Hadoop configuration for YARN: {' and '.join(HADOOP_VARIABLES)} do not name an "
            f"existing directory{f': {chr(44).join(found)}' if found else ''}; set one of them in the environment"
        )
    return found


def reach_master(master: str) -> None:
    """Check that a cluster's master accepts connections; Spark itself would retry for a minute.

    Raises:
        SparkFailed: no master answers.
    """
    if not is_cluster(master) or master == YARN:
        return
    failures = []
    for host, port in masters_of(master):
        try:
            socket.create_connection((host, port), MASTER_TIMEOUT_S).close()
        except OSError as error:
            failures.append(f"{host}:{port}: {error}")
        else:
            return
    who = "Kubernetes did not answer" if is_managed(master) else "no Spark master answered"
    raise SparkFailed(f"{who} ({'; '.join(failures)}): start it or correct {master}")


def _open(config: SessionConfig, java: Java, environment: dict[str, str]) -> Session:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext

    if SparkContext._gateway is not None:
        raise SparkFailed("this process already has a Spark session: stop it or use it")
    environment["PYSPARK_PYTHON"] = python = config.settings.get("spark.pyspark.python", config.python)
    jvm = start_from_archive(config, java, environment)
    try:
        conf = SparkConf(loadDefaults=False)
        conf.setMaster(spark_master(config.master)).setAppName(config.app_name)
        for key, value in spark_settings(config, jvm.scratch).items():
            conf.set(key, value)
        with _environ(PYSPARK_PYTHON=python, PYSPARK_GATEWAY_PORT=str(jvm.port), PYSPARK_GATEWAY_SECRET=jvm.secret):
            context = SparkContext.getOrCreate(conf)
        context.setLogLevel("ERROR")
        return Session(context, java, jvm)
    except BaseException as error:
        reason = first_line(error)  # requires a running JVM
        SparkContext._gateway = SparkContext._jvm = None
        SparkContext._active_spark_context = None
        end_jvm(jvm.process, 0)
        remove_scratch(jvm.scratch)
        if isinstance(error, (Py4JError, OSError)):
            raise SparkFailed(f"cannot open a session with master {config.master}: {reason}") from error
        raise


def start_from_archive(config: SessionConfig, java: Java, environment: dict[str, str]) -> Jvm:
    """Start the JVM from the class archive if there is one, and without the archive if that fails."""
    archive, options = None, []
    directory = archive_directory(environment) if config.class_archive else None
    if directory is not None:
        with contextlib.suppress(OSError):
            archive = ClassArchive.of(directory, java, spark_jars())
            options = archive.options()
    scratch = make_scratch(config.directory)
    try:
        return Jvm(*start_jvm(config, java, environment, scratch, options), scratch, bool(options))
    except SparkFailed:
        if archive is None or not options:
            raise
        archive.discard()
    scratch = make_scratch(config.directory)
    return Jvm(*start_jvm(config, java, environment, scratch), scratch, False)


@contextlib.contextmanager
def _environ(**values: str) -> Iterator[None]:
    """Set environment variables of this process temporarily, because PySpark reads some settings only from them."""
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


def first_line(error: BaseException) -> str:
    """Return the message of a JVM error without its stack trace."""
    cause: Any = getattr(error, "java_exception", None)
    lines = str(error if cause is None else cause.toString()).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def keep_text(error: BaseException) -> None:
    """Cache the message of a JVM error, which is otherwise requested from the JVM and lost once the JVM has ended."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException

    if not isinstance(error, (Py4JJavaError, CapturedException)):
        return
    with contextlib.suppress(Py4JError, OSError, AssertionError):  # the JVM has already ended
        text, kind = str(error), type(error)
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__str__": lambda _: text}
        error.__class__ = type(kind.__name__, (kind,), names)


def start_jvm(
    config: SessionConfig, java: Java, environment: dict[str, str], scratch: Path, options: Sequence[str] = ()
) -> tuple[subprocess.Popen[bytes], int, str]:
    """Start the JVM of a driver, and return its process and the port and secret of its Py4J gateway.

    Args:
        config: session configuration.
        java: Java to run.
        environment: environment of the JVM.
        scratch: directory for the JVM's files.
        options: additional JVM options.

    Raises:
        SparkFailed: the JVM exited or was not ready in time.
    """
    home = spark_jars().parent
    answer = scratch / "gateway"
    command = [
        str(java.binary),
        *module_options(java, home / "jars"),
        *options,
        *config.jvm_options,
        f"-Xmx{config.heap}",
        _temporary_option(scratch),
        "-cp",
        ":".join([f"{home / 'conf'}", f"{home / 'jars'}/*", *need_configuration(config.master, environment)]),
        "org.apache.spark.deploy.SparkSubmit",
        # These masters need preparation that the setting alone does not trigger.
        *(("--master", spark_master(config.master)) if is_managed(config.master) else ()),
        # Adds the jars to the driver's class path; the setting alone applies only to executors.
        *(("--jars", config.settings["spark.jars"]) if config.settings.get("spark.jars") else ()),
        "pyspark-shell",
    ]
    # Without this variable, Spark resolves the host name, and does not start if that fails.
    environment.setdefault("SPARK_LOCAL_IP", config.driver_host)
    environment |= {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer), "SPARK_CONNECT_MODE": "0"}
    environment["SPARK_HOME"] = str(home if is_cluster(config.master) else _home_without_zip(home, scratch))
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(config.log_file.open("ab")) if config.log_file is not None else None
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        # Spark renames the finished file to this name, so it is complete if it exists.
        while not answer.exists():
            if process.poll() is not None:
                raise SparkFailed(
                    f"the JVM in {java.home} (from {java.origin}) exited during startup with code "
                    f"{process.returncode}; see {'its standard error' if config.log_file is None else config.log_file}"
                )
            if time.monotonic() > deadline:
                raise SparkFailed(f"the JVM in {java.home} was not ready within {START_TIMEOUT_S:g} s")
            time.sleep(_POLL_S)
        data = answer.read_bytes()
    except BaseException:
        end_jvm(process, 0)
        remove_scratch(scratch)
        raise
    port, length = struct.unpack_from(">ii", data)
    return process, port, data[8 : 8 + length].decode()


def _home_without_zip(home: Path, scratch: Path) -> Path:
    """Return a directory of links to Spark's home, without the zip archive of PySpark's sources.

    Spark puts that archive first on the search path of its Python workers. Modules imported from it are recompiled each
    time, which takes half a second in each of four processes. The installed package has the same modules, already
    compiled.
    """
    linked = scratch / "home"
    linked.mkdir()
    for path in home.iterdir():
        if path.name != "python":
            (linked / path.name).symlink_to(path)
    return linked


def make_scratch(directory: Path) -> Path:
    """Create a directory for one driver, remove those of dead drivers, and return the new directory."""
    directory.mkdir(parents=True, exist_ok=True)
    sweep(directory)
    scratch = Path(tempfile.mkdtemp(prefix=f"{SCRATCH_PREFIX}{os.getpid()}-", dir=directory))
    # Directory for the JVM's own temporary files, which a killed JVM leaves behind. It is not in the scratch directory,
    # whose path may be too long for Spark's Unix sockets, but linked from there.
    (scratch / _TEMPORARY).symlink_to(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX))
    return scratch


def remove_scratch(scratch: Path) -> None:
    """Remove a driver's directory and its JVM's temporary files."""
    with contextlib.suppress(OSError):
        temporary = (scratch / _TEMPORARY).readlink()
        if temporary.name.startswith(_TEMPORARY_PREFIX):
            shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(scratch, ignore_errors=True)


def sweep(directory: Path) -> None:
    """Kill the JVMs of dead drivers and remove their files from the session directory."""
    for left in directory.glob(f"{SCRATCH_PREFIX}*"):
        pid = left.name[len(SCRATCH_PREFIX) :].partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            abandon(left)


def abandon(scratch: Path) -> None:
    """Kill any JVM that uses a directory, and remove the directory.

    A starting JVM writes its address to the directory. Without the directory it hangs and does not read its standard
    input, so it would never exit.
    """
    with contextlib.suppress(OSError):
        option = os.fsencode(_temporary_option(scratch))
        for command in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has just ended or is not ours
                if option in command.read_bytes().split(b"\0"):
                    os.killpg(int(command.parent.name), signal.SIGKILL)
    remove_scratch(scratch)


def _temporary_option(scratch: Path) -> str:
    return f"-Djava.io.tmpdir={(scratch / _TEMPORARY).readlink()}"


def end_jvm(process: subprocess.Popen[bytes], timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Close the JVM's standard input, which makes it exit, and kill it after ``timeout_s``, with 0 immediately.

    A JVM that fails to start is killed, because a JVM that writes a class archive takes many seconds to exit.
    """
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def check_ready(master: str, environment: Mapping[str, str] | None = None, directory: Path | None = None) -> None:
    """Check the installed extra, Java, the master and the disk. Blocking: an unresponsive master takes 5 s per address.

    Args:
        master: Spark master, as in `SessionConfig`.
        environment: used to find Java; None for this process's environment.
        directory: directory to which Spark writes; created if missing.

    Raises:
        InvalidConfig: a requirement is not installed or configured, the kind of master is unknown, or the disk is full.
        SparkFailed: no master answers.
    """
    need_spark()
    environment = os.environ if environment is None else environment
    find_java(environment)
    spark_master(master)
    need_configuration(master, environment)
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
        why = "it is not a directory" if isinstance(error, FileExistsError) else error.strerror or error
        raise InvalidConfig(
            f"Spark cannot write to {directory}: {why}; make the directory writable or configure "
            "another data directory for the worker"
        ) from error
    if free < FREE_BYTES_MIN:
        raise InvalidConfig(
            f"only {free // 1024**2} MB are free in {directory}, but Spark requires at least "
            f"{FREE_BYTES_MIN // 1024**2} MB: free some space or configure another data directory for the worker"
        )
