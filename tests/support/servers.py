"""Run our servers as a user does: as a child process with free ports, a ready file, and a log.

This module does not import the broker or the worker: it runs the command line, so that tests see what a user sees. Each
server is stopped by its own pid, together with all processes left below that pid.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from .ports import Reserved
from .waiting import POLL_S

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0  # the servers promise 10 s where nothing delays them
LEFTOVERS_S = 10.0
LOG_TAIL_BYTES = 6000

COMMAND = (sys.executable, "-m", "magnetar.cli")
ROOT = Path(__file__).parents[2]


class ServerFailed(AssertionError):
    """A server did not start, or did not stop in time; the message contains the end of its log."""


@dataclass
class Server:
    """A `magnetar standalone`, `broker` or `worker` process.

    Attributes:
        command: arguments of `python -m magnetar.cli`, without ports and ready file; the first word names the log.
        directory: directory of its ready file and log; the data directory is `directory / "data"`.
        addresses: content of the ready file.
        environment: variables in addition to those of the test.
        cwd: working directory.
    """

    command: tuple[str, ...]
    directory: Path
    process: subprocess.Popen[bytes] | None = None
    addresses: dict[str, str | int] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    cwd: Path = ROOT
    _ports: Reserved | None = None

    @property
    def service_url(self) -> str:
        return str(self.addresses["brokerServiceUrl"])

    @property
    def web_url(self) -> str:
        return str(self.addresses["webServiceUrl"])

    @property
    def worker_url(self) -> str:
        return str(self.addresses["workerUrl"])

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log_file(self) -> Path:
        return self.directory / f"{self.command[0]}.log"

    def log_tail(self) -> str:
        """Return the last lines of the process's log."""
        if not self.log_file.exists():
            return "(no log)"
        return self.log_file.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")

    def start(self, extra: Sequence[str] = ()) -> None:
        """Start the process, and return when its ready file exists; later starts reuse the ports of the first."""
        ready_file = self.directory / f"{self.command[0]}.ready.json"
        ready_file.unlink(missing_ok=True)
        arguments = [*COMMAND, *self.command, *self._port_flags(), "--ready-file", str(ready_file), *extra]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.cwd,
                env={**os.environ, **self.environment},
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            addresses = _read_json(ready_file)
            if addresses is not None:
                self.addresses = addresses
                return
            if self.process.poll() is not None:
                raise ServerFailed(f"{' '.join(arguments)} ended with {self.process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.stop()
                raise ServerFailed(f"{' '.join(arguments)} not ready after {START_TIMEOUT_S} s:\n{self.log_tail()}")
            time.sleep(POLL_S)

    def kill(self) -> None:
        """Kill the server's own process with SIGKILL, as in a power failure, and return when it has ended."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)

    def restart(self) -> None:
        """Restart it with the same ports and data after `kill` or `stop`."""
        assert self.process is not None
        assert self.process.poll() is not None
        self.start()

    def stop(self) -> int:
        """Send SIGTERM, and SIGKILL after 10 s, also to processes below it; return the exit code.

        Raises:
            ServerFailed: the process had to be killed, or left processes behind.
        """
        if self.process is None:
            return 0
        below = descendants(self.process.pid)
        leftovers: list[psutil.Process] = []
        try:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            code = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)
            raise ServerFailed(f"{self.command} ignored SIGTERM for {STOP_TIMEOUT_S} s:\n{self.log_tail()}") from None
        finally:
            leftovers = survivors(below, LEFTOVERS_S)
            for process in leftovers:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        if leftovers:
            raise ServerFailed(f"{self.command} left {leftovers} behind:\n{self.log_tail()}")
        return code

    def _port_flags(self) -> list[str]:
        names = PORT_FLAGS[self.command[0]]
        if self._ports is None:
            self._ports = Reserved(len(names))
        return [word for name, port in zip(names, self._ports.numbers, strict=True) for word in (name, str(port))]


PORT_FLAGS = {
    "broker": ("--broker-port", "--web-port"),
    "standalone": ("--broker-port", "--web-port", "--worker-port", "--state-port"),
    "state-store": ("--state-port",),
    "worker": ("--worker-port",),
}


def descendants(pid: int) -> list[psutil.Process]:
    """Return all running processes below `pid`."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def survivors(processes: Sequence[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Return the processes that are still running after a time limit, or as soon as all have ended.

    A zombie counts as ended: an orphan's new parent may be slow to reap it.
    """
    deadline = time.monotonic() + timeout_s
    while (alive := [one for one in processes if is_alive(one)]) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return alive


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process is still running."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def server(kind: str, directory: Path, *flags: str) -> Server:
    """Return a server whose data is below `directory`, without starting it."""
    directory.mkdir(parents=True, exist_ok=True)
    return Server((kind, "--data-dir", str(directory / "data"), *flags), directory)


@contextlib.contextmanager
def running(kind: str, directory: Path, *flags: str) -> Iterator[Server]:
    """Run a server inside the with block."""
    it = server(kind, directory, *flags)
    try:
        it.start()
        yield it
    finally:
        it.stop()


def _read_json(path: Path) -> dict[str, str | int] | None:
    try:
        value = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    assert isinstance(value, dict)
    return value
