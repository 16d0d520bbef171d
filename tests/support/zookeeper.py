"""A real ZooKeeper server: the Debian package `zookeeper`, on a free port, with data in a temporary directory."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from .ports import Reserved
from .waiting import wait_for

PACKAGE = "zookeeper"
JARS = Path("/usr/share/java")
MAIN_JAR = JARS / "zookeeper.jar"  # its manifest names the jars that it needs
LOG_JAR = JARS / "slf4j-simple.jar"
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
LOG_TAIL_BYTES = 3000
TICK_MS = 500  # sessions last 2 to 20 ticks


def require_zookeeper() -> None:
    """Skip the test if the package is missing; fail if all dependencies are required."""
    if MAIN_JAR.exists() and shutil.which("java"):
        return
    reason = f"no ZooKeeper server on this machine; on Debian: apt-get install {PACKAGE}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@dataclass
class Zookeeper:
    """A server that reuses its port and data after `kill` and `start`."""

    directory: Path
    ports: Reserved = field(default_factory=lambda: Reserved(1))
    process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        return self.ports.numbers[0]

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_file(self) -> Path:
        return self.directory / "zookeeper.log"

    def start(self) -> None:
        """Start the server, and return when it accepts requests."""
        config = self.directory / "zoo.cfg"
        config.write_text(
            f"dataDir={self.directory}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            f"tickTime={TICK_MS}\nadmin.enableServer=false\n4lw.commands.whitelist=ruok,srvr,cons\n"
        )
        java = [
            "java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.jmx.log4j.disable=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{MAIN_JAR}:{LOG_JAR}", MAIN_CLASS, str(config),
        ]  # fmt: skip
        if setpriv := shutil.which("setpriv"):  # however this process ends, the server ends with it
            java = [setpriv, "--pdeathsig", "KILL", *java]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(java, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_for(self._serves, "answer of ZooKeeper", START_TIMEOUT_S)
        except AssertionError as exc:
            self.stop()
            raise AssertionError(f"{exc}\n{self.log_tail()}") from exc

    def command(self, word: str) -> str:
        """Return the response to a four-letter command."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
            connection.sendall(word.encode())
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
        return answer.decode()

    def log_tail(self) -> str:
        return self.log_file.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")

    def kill(self) -> None:
        """Kill the server with SIGKILL, and return when it has ended."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)

    def freeze(self) -> None:
        """Make it accept bytes without replying."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def _serves(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None or time.monotonic() < 0, f"ended with {self.process.returncode}"
        return "Mode: standalone" in self.command("srvr")


@contextlib.contextmanager
def running_zookeeper(directory: Path) -> Iterator[Zookeeper]:
    """Run a server, and kill it at the end."""
    require_zookeeper()
    directory.mkdir(parents=True, exist_ok=True)
    server = Zookeeper(directory)
    try:
        server.start()
        yield server
    finally:
        server.stop()
