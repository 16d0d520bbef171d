"""Apache Pulsar's own Java function, the ExclamationFunction of its examples, in a separate JVM.

It is run by Pulsar's LocalRunner, like `pulsar-admin functions localrun`, with the heap size of a process instance of
Pulsar's worker. So the configuration of the Apache Pulsar's worker, and whether it has one, do not matter. The code is
downloaded from Maven in the broker's version.
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
"""Packages that Pulsar's scripts open to its code."""
HEAP = "1g"
STOP_TIMEOUT_S = 20.0


class FunctionEnded(AssertionError):
    """The function's JVM ended by itself; the message carries the end of what it wrote."""


class JavaFunction:
    """The function in its JVM, from `start` to `stop`.

    Attributes:
        name: of the function, in public/default.
    """

    def __init__(self, name: str, jars: Path, directory: Path) -> None:
        self.name = name
        self._jars = jars
        self._directory = directory
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, service_url: str, source: str, output: str) -> None:
        """Start it between two topics; `source` needs a STRING schema, see `make_input_topic`."""
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
        """Raise `FunctionEnded` if it does not run any more."""
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            tail = self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
            raise FunctionEnded(f"the JVM of {self.name} ended with {code}:\n{tail}")

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for what does not end."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)


def version_of(web_url: str) -> str:
    """The version that an Apache Pulsar tells."""
    return httpx.get(f"{web_url}/admin/v2/brokers/version", timeout=10).raise_for_status().text.strip().strip('"')


def jars(version: str) -> Path:
    """The directory with LocalRunner, the examples and all that they need.

    Raises:
        RuntimeError: this machine has no Java or no Maven.
        DownloadFailed: Maven did not bring them.
    """
    if not maven.is_there():
        raise RuntimeError("no java or no mvn on this machine: apt-get install openjdk-17-jre-headless maven")
    names = ("pulsar-functions-local-runner-original", "pulsar-functions-api-examples")
    artifacts = [*(f"{GROUP}:{name}:{version}" for name in names), *LOGGING]
    return maven.jars("pulsar-functions", artifacts, versions_of=f"{GROUP}:pulsar:{version}")


def make_input_topic(web_url: str, topic: str) -> None:
    """Create a topic with a STRING schema, which the function's consumer demands of one that has messages."""
    with httpx.Client(base_url=f"{web_url}/admin/v2/", timeout=30) as http:
        http.put(f"persistent/public/default/{topic}").raise_for_status()
        schema = {"type": "STRING", "schema": "", "properties": {}}
        http.post(f"schemas/public/default/{topic}/schema", json=schema).raise_for_status()


@contextlib.contextmanager
def running(function: JavaFunction, service_url: str, source: str, output: str) -> Iterator[JavaFunction]:
    """The function while the context lasts."""
    try:
        function.start(service_url, source, output)
        yield function
    finally:
        function.stop()
