"""Apache Pulsar's own Java function, the ExclamationFunction of its examples, in a separate JVM.

It is run by Pulsar's LocalRunner, like `pulsar-admin functions localrun`, with the heap size of a process instance on
Pulsar's worker. So Apache Pulsar needs no worker, and its worker's configuration is irrelevant. The code is downloaded
from Maven in the broker's version.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.connectors.servers import maven
from tests.support.servers import LOG_TAIL_BYTES

CLASS = "org.apache.pulsar.functions.api.examples.ExclamationFunction"
RUNNER = "org.apache.pulsar.functions.LocalRunner"
GROUP = "org.apache.pulsar"
LOGGING = ("org.apache.logging.log4j:log4j-slf4j-impl:2.23.1", "org.apache.logging.log4j:log4j-core:2.23.1")
LOG4J = """<Configuration status="ERROR">
<Appenders><Console name="C"><PatternLayout pattern="%d %p %c{1} - %m%n"/></Console></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="C"/></Root></Loggers></Configuration>
"""
OPENED = (
    "java.base/sun.net", "java.base/java.lang", "java.base/java.util.zip", "java.base/java.io", "java.base/java.nio",
    "java.base/jdk.internal.misc", "java.base/jdk.internal.platform", "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)  # fmt: skip
"""Packages opened by Pulsar's start scripts."""
HEAP = "1g"
STOP_TIMEOUT_S = 20.0


class FunctionEnded(AssertionError):
    """The function's JVM exited unexpectedly; the message contains the end of its output."""


class JavaFunction:
    """The function in its JVM, running from `start` to `stop`.

    Attributes:
        name: name of the function, in public/default.
    """

    def __init__(self, name: str, jars: Path, directory: Path) -> None:
        self.name = name
        self._jars = jars
        self._directory = directory
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, service_url: str, source: str, output: str) -> None:
        """Start the function between two topics; `source` needs a STRING schema (see `make_input_topic`)."""
        (example,) = self._jars.glob("pulsar-functions-api-examples-*.jar")
        config = {
            "tenant": "public",
            "namespace": "default",
            "name": self.name,
            "className": CLASS,
            "runtime": "JAVA",
            "jar": str(example),
            "inputs": [source],
            "output": output,
            "subscriptionPosition": "Earliest",
        }
        log4j = self._directory / "log4j2.xml"
        log4j.write_text(LOG4J)
        command = [
            "java", f"-Xmx{HEAP}", *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED),
            "-Dio.netty.tryReflectionSetAccessible=true", f"-Dlog4j2.configurationFile={log4j}",
            f"-Djava.io.tmpdir={self._directory}", "-cp", f"{self._jars}/*", RUNNER,
            "--functionConfig", json.dumps(config), "--brokerServiceUrl", service_url,
        ]  # fmt: skip
        if setpriv := shutil.which("setpriv"):  # ensures that it is stopped when this process ends
            command = [setpriv, "--pdeathsig", "TERM", *command]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._directory
            )

    def check(self) -> None:
        """Raise `FunctionEnded` if the JVM has exited."""
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            tail = self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
            raise FunctionEnded(f"the JVM of {self.name} exited with code {code}:\n{tail}")

    def stop(self) -> None:
        """Stop the JVM: SIGTERM, then SIGKILL."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)


def version_of(web_url: str) -> str:
    """Return the version reported by an Apache Pulsar."""
    return httpx.get(f"{web_url}/admin/v2/brokers/version", timeout=10).raise_for_status().text.strip().strip('"')


def jars(version: str) -> Path:
    """Return the directory with LocalRunner, the examples and their dependencies.

    Raises:
        RuntimeError: Java or Maven is missing.
        DownloadFailed: Maven could not download them.
    """
    if not maven.is_there():
        raise RuntimeError("java or mvn is missing: apt-get install openjdk-17-jre-headless maven")
    names = ("pulsar-functions-local-runner-original", "pulsar-functions-api-examples")
    artifacts = [*(f"{GROUP}:{name}:{version}" for name in names), *LOGGING]
    return maven.jars("pulsar-functions", artifacts, versions_of=f"{GROUP}:pulsar:{version}")


def make_input_topic(web_url: str, topic: str) -> None:
    """Create a topic with a STRING schema, which the function's consumer requires if the topic has messages."""
    with httpx.Client(base_url=f"{web_url}/admin/v2/", timeout=30) as http:
        http.put(f"persistent/public/default/{topic}").raise_for_status()
        schema = {"type": "STRING", "schema": "", "properties": {}}
        http.post(f"schemas/public/default/{topic}/schema", json=schema).raise_for_status()


@contextlib.contextmanager
def running(function: JavaFunction, service_url: str, source: str, output: str) -> Iterator[JavaFunction]:
    """Run the function while the context lasts."""
    try:
        function.start(service_url, source, output)
        yield function
    finally:
        function.stop()
