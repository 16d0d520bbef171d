"""Table services as processes: on a full disk, with limits, and killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from magnetar.state.client import TableClient

from tests.support.ports import Reserved
from tests.support.waiting import wait_for

COMMAND = (sys.executable, "-m", "magnetar.cli", "state-store", "--ready-file", "-")


class Service:
    """A table service that keeps its port when it is killed and restarted.

    Attributes:
        url: URL of the service.
    """

    def __init__(self, directory: Path, before: Sequence[str] = ()) -> None:
        self.directory = directory
        self.url = ""
        self._ports = Reserved(1)
        self._before = before
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return (self.directory.parent / "state.log").read_text()

    def start(self) -> None:
        """Start the service, and return when it is ready."""
        port = str(self._ports.numbers[0])
        with (self.directory.parent / "state.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._before, *COMMAND, "--data-dir", str(self.directory), "--state-port", port],
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"it did not start:\n{self.log}"
        self.url = json.loads(line)["stateStorageServiceUrl"]

    def kill(self) -> None:
        """Kill the service with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._end()

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.terminate()
        return self._end()

    def _end(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self._process.wait(60)


@contextlib.contextmanager
def running_service(directory: Path, before: Sequence[str] = ()) -> Iterator[tuple[Service, TableClient]]:
    """Run a service, and return a client of it."""
    service = Service(directory, before)
    service.start()
    client = TableClient(service.url)
    try:
        yield service, client
    finally:
        client.close()
        service.stop()


def until_reachable(client: TableClient) -> None:
    """Wait until a restarted service replies."""
    wait_for(lambda: client.statistics(), "answer of the state store")


@contextlib.contextmanager
def small_disk(size_bytes: int) -> Iterator[tuple[Path, Sequence[str]] | None]:
    """Create a directory of limited size for processes run with the yielded prefix; None if not permitted."""
    directory = Path(tempfile.mkdtemp())
    mount = f"mount -t tmpfs -o size={size_bytes} small {directory}"
    try:
        probe = subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False)
        permitted = probe.returncode == 0
    except FileNotFoundError:
        permitted = False
    try:
        yield (directory, ("unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh")) if permitted else None
    finally:
        shutil.rmtree(directory)


def as_it_sees(service: Service, path: Path) -> Path:
    """Return a path in the file system that the service sees."""
    return Path(f"/proc/{service.pid}/root{os.fspath(path)}")
