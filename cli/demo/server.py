"""The demo's server: `magnetar standalone` as a child process, on free ports, in a separate directory."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from ..failure import Failure
from ..servers.lifetime import PARENT_VARIABLE

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 12.0
POLL_S = 0.02
LOG_LINES_SHOWN = 5
OWN_NAMES = ("data", "files", "identifiers", "ready.json", "standalone.log")


class DemoServer:
    """A standalone server in a directory; it ends with this process unless it is kept.

    Attributes:
        directory: directory for data, log and ready file.
        addresses: content of the ready file.
    """

    def __init__(self, directory: Path, *, is_kept: bool = False) -> None:
        self.directory = directory
        self._is_kept = is_kept
        self.addresses: dict[str, str] = {}
        self.pid = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log_file(self) -> Path:
        """The server's log file."""
        return self.directory / "standalone.log"

    def start(self) -> None:
        """Start the server and wait until it is ready.

        Raises:
            Failure: an earlier demo is still running, or the server did not start; the message contains the reason.
        """
        ready_file = self.directory / "ready.json"
        self._refuse_second(ready_file)
        self.clean_up()
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "magnetar.cli", "standalone", "--data-dir", str(self.directory / "data")]
        for flag in ("--broker-port", "--web-port", "--worker-port", "--state-port"):
            command += [flag, "0"]
        command += ["--ready-file", str(ready_file)]
        environment = dict(os.environ)
        if not self._is_kept:
            environment[PARENT_VARIABLE] = str(os.getpid())
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self.pid = self._process.pid
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not ready_file.exists():
            if self._process.poll() is not None:
                raise Failure(f"the server exited with code {self._process.returncode}: {self.last_words()}")
            if time.monotonic() > deadline_s:
                raise Failure(f"the server was not ready after {START_TIMEOUT_S:g} s: {self.last_words()}")
            time.sleep(POLL_S)
        self.addresses = json.loads(ready_file.read_text())

    def stop(self) -> None:
        """Stop the server: SIGTERM, then SIGKILL after a deadline."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def clean_up(self) -> None:
        """Remove the demo's files; other files in the directory are kept."""
        for name in OWN_NAMES:
            path = self.directory / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # contains other files, or is missing
            self.directory.rmdir()

    def last_words(self) -> str:
        """Return the end of the server's log."""
        if not self.log_file.exists():
            return "no log file exists"
        lines = self.log_file.read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-LOG_LINES_SHOWN:]) or "its log is empty"

    def _refuse_second(self, ready_file: Path) -> None:
        try:
            pid = int(json.loads(ready_file.read_text())["pid"])
            os.kill(pid, 0)
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError, KeyError):
            return
        if b"magnetar" in title:
            stop = f"kill -{signal.SIGTERM.name} {pid}"
            raise Failure(
                f"another demo is running in this directory as process {pid}: stop it with `{stop}` or use another"
                " --directory"
            )
