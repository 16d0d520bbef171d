"""Apache Pulsar's functions worker in its own JVM, on any broker. Maven brings it and the functions of its examples."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx

from benchmarks.java_function import GROUP, LOG4J, LOGGING, OPENED
from tests.clients.programs import PULSAR_VERSION
from tests.connectors.servers import maven
from tests.support.ports import Reserved
from tests.support.pulsar import Broker
from tests.support.waiting import wait_for

MAIN_CLASS = "org.apache.pulsar.functions.worker.FunctionWorkerStarter"
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 30.0
LOG_TAIL_BYTES = 20_000


class FunctionsWorker:
    """A worker from `start` to `stop`.

    Attributes:
        url: of its REST API.
        examples: the jar with the functions of Apache Pulsar's examples.
    """

    def __init__(self, directory: Path, broker: Broker) -> None:
        maven.require()
        artifacts = [
            f"{GROUP}:{name}:{PULSAR_VERSION}" for name in ("pulsar-functions-worker", "pulsar-functions-api-examples")
        ]
        self._jars = maven.jars(
            "pulsar-functions-worker", [*artifacts, *LOGGING], versions_of=f"{GROUP}:pulsar:{PULSAR_VERSION}"
        )
        (self.examples,) = self._jars.glob("pulsar-functions-api-examples-*.jar")
        self._directory = directory
        self._broker = broker
        self._port = Reserved(1)
        self._log = directory / "functions-worker.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port.numbers[0]}"

    def log_tail(self) -> str:
        """The end of what it logged."""
        return self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")

    def start(self) -> None:
        """Start its JVM; `wait_until_ready` returns once it serves."""
        (self._directory / "functions_worker.yml").write_text(
            "workerId: java-worker\nworkerHostname: 127.0.0.1\n"
            f"workerPort: {self._port.numbers[0]}\n"
            f"pulsarServiceUrl: {self._broker.service_url}\npulsarWebServiceUrl: {self._broker.web_url}\n"
            "pulsarFunctionsNamespace: public/functions\npulsarFunctionsCluster: standalone\n"
            "functionMetadataTopicName: metadata\nclusterCoordinationTopicName: coordinate\n"
            "functionAssignmentTopicName: assignments\nnumFunctionPackageReplicas: 1\n"
            "schedulerClassName: org.apache.pulsar.functions.worker.scheduler.RoundRobinScheduler\n"
            "functionRuntimeFactoryClassName: org.apache.pulsar.functions.runtime.thread.ThreadRuntimeFactory\n"
            "functionRuntimeFactoryConfigs:\n  threadGroupName: functions\n"
            "failureCheckFreqMs: 30000\nrescheduleTimeoutMs: 60000\ninitialBrokerReconnectMaxRetries: 5\n"
            "additionalEnabledFunctionsUrlPatterns: ['file://.*']\n"
            f"downloadDirectory: {self._directory}/download\n"
        )
        log4j = self._directory / "log4j2.xml"
        log4j.write_text(LOG4J)
        command = [
            "java", "-Xmx512m", *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED),
            "-Dio.netty.tryReflectionSetAccessible=true", f"-Dlog4j2.configurationFile={log4j}",
            f"-Djava.io.tmpdir={self._directory}", f"-Dpulsar.functions.instance.classpath={self._jars}/*",
            "-cp", f"{self._jars}/*", MAIN_CLASS, "-c", "functions_worker.yml",
        ]  # fmt: skip
        if setpriv := shutil.which("setpriv"):  # however this process ends, the worker is stopped
            command = [setpriv, "--pdeathsig", "TERM", *command]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._directory
            )

    def wait_until_ready(self) -> None:
        """Return once the worker has a leader and takes functions."""

        assert self._process is not None
        process = self._process

        def is_ready() -> bool:
            if process.poll() is not None:
                return True
            leader = httpx.get(f"{self.url}/admin/v2/worker/cluster/leader", timeout=10)
            return leader.status_code == 200 and bool(leader.content)

        try:
            wait_for(is_ready, "leader of the functions workers", START_TIMEOUT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_tail()}") from error
        assert process.poll() is None, f"the worker ended with {process.returncode}:\n{self.log_tail()}"

    def wait_until_ended(self) -> int:
        """Return its exit code."""
        assert self._process is not None
        return self._process.wait(START_TIMEOUT_S)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if it does not end."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)


@contextlib.contextmanager
def running_worker(directory: Path, broker: Broker) -> Iterator[FunctionsWorker]:
    """A worker that has been started, and is stopped at the end."""
    directory.mkdir(parents=True)
    worker = FunctionsWorker(directory, broker)
    try:
        worker.start()
        yield worker
    finally:
        worker.stop()
