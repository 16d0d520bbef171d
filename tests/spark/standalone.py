"""A real standalone Spark cluster on loopback: a master and two workers of the installed pyspark."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
from magnetar.runtime.spark.java import Java, find_java, module_options, standalone_environment

from tests.support.waiting import wait_for

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 20.0
WORKERS = 2
LIGHT = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dspark.master.rest.enabled=false")
"""Three more JVMs do not need what makes one fast in the long run."""
EXECUTORS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
"""Settings of drivers whose executors fit into the workers."""


class SparkCluster:
    """A master and its workers, one core and 600 MB each.

    Attributes:
        master: its URL.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        import pyspark

        self._home = Path(pyspark.__file__).parent
        self._java: Java = find_java(environment)
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
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
        """Start all; returns when the workers are registered."""
        log = self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0", "--webui-port", "0")
        found = wait_for(
            lambda: re.search(r"Starting Spark master at (spark://\S+)", log.read_text()), "master", START_TIMEOUT_S
        )
        self.master = found[1]
        for number in range(WORKERS):
            self._start(
                f"worker-{number}", "org.apache.spark.deploy.worker.Worker", "--webui-port", "0",
                "--cores", "1", "--memory", "600m", self.master,
            )  # fmt: skip
        wait_for(
            lambda: log.read_text().count("Registering worker") == WORKERS,
            "registered workers",
            START_TIMEOUT_S,
        )

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
        """The JVMs that run tasks."""
        below = [child for process in self._processes[1:] for child in psutil.Process(process.pid).children(True)]
        return [child for child in below if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline())]

    def stop(self) -> None:
        """Stop all, the last one first."""
        below: list[psutil.Process] = []
        for process in reversed(self._processes):
            with contextlib.suppress(psutil.NoSuchProcess):
                below += psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for left in psutil.wait_procs(below, timeout=5)[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()


@contextlib.contextmanager
def spark_cluster(directory: Path, environment: Mapping[str, str] | None = None) -> Iterator[SparkCluster]:
    """A started cluster, stopped at the end."""
    cluster = SparkCluster(directory, dict(os.environ) if environment is None else environment)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
