"""Servers for connector tests: each is a child process on a free port of 127.0.0.1, never run as root."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import psutil
import pytest

from tests.support.ports import Reserved
from tests.support.servers import LOG_TAIL_BYTES, ServerFailed, descendants, survivors
from tests.support.waiting import wait_for

_S = TypeVar("_S", bound="RealServer")


class RealServer(ABC):
    """One server; restarting it after `kill` or `stop` keeps its ports and its data.

    Attributes:
        binary: the program that must be there, a name or a path; empty if nothing has to be installed.
        package: what brings it, as the message says where it is missing: ``apt-get install redis-server``.
        drops_rights: whether the program itself becomes the user whose numbers it finds in MAGNETAR_TEST_UID and
            MAGNETAR_TEST_GID: an interpreter of Python may be in a directory that only root may enter.
        user: who runs it where the tests run as root; ``nobody`` if there is no such user.
        ports_needed: how many ports it gets.
        start_timeout_s: until it takes requests.
        stop_timeout_s: from SIGTERM to its end; it is killed then.
        directory: of its data, its log and its configuration; the user's.
        ports: that it listens on.
    """

    binary: ClassVar[str] = ""
    package: ClassVar[str] = ""
    user: ClassVar[str] = "nobody"
    drops_rights: ClassVar[bool] = False
    ports_needed: ClassVar[int] = 1
    start_timeout_s: ClassVar[float] = 90.0
    stop_timeout_s: ClassVar[float] = 30.0

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._reserved = Reserved(self.ports_needed)
        self.ports = self._reserved.numbers
        self._process: subprocess.Popen[bytes] | None = None
        self._is_prepared = False
        # The server ends with the thread that started it, however that ends; this one lives as long as the tests.
        self._starter = ThreadPoolExecutor(1)
        if self._account is not None:
            os.chown(directory, self._account.pw_uid, self._account.pw_gid)

    @classmethod
    def require(cls) -> None:
        """Skip the test if the program is missing; fail where all programs are required."""
        if not cls.binary or shutil.which(cls.binary):
            return
        reason = f"no {cls.binary} on this machine: {cls.package}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)

    @classmethod
    @contextlib.contextmanager
    def running(cls: type[_S]) -> Iterator[_S]:
        """Run a server in a separate directory; stop it and remove the directory at the end."""
        cls.require()
        with tempfile.TemporaryDirectory(prefix=f"magnetar-{cls.__name__.lower()}-") as name:
            Path(name).chmod(0o755)  # pytest's own directories are root's alone
            server = cls(Path(name))
            try:
                server.start()
                yield server
            finally:
                server.stop()

    # -- what a server says of itself ---------------------------------------------------------------------------------

    def prepare(self) -> None:  # noqa: B027  most have nothing to do
        """Create the data directory and the configuration; called once, before the first start."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the command that runs the server in the foreground."""

    def environment(self) -> Mapping[str, str]:
        """Return environment variables in addition to the inherited ones."""
        return {}

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether the server accepts requests; an exception means that it does not."""

    # -- what tests do with it ----------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The first port."""
        return self.ports[0]

    @property
    def pid(self) -> int:
        """Process ID of the latest start."""
        assert self._process is not None, "never started"
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it accepts requests.

        Raises:
            ServerFailed: it does not; the message has the end of its log.
        """
        if not self._is_prepared:
            self.prepare()
            self._is_prepared = True
        self._process = self._starter.submit(self._popen, self._as_user(self.command())).result()

        process = self._process

        def is_ready_or_ended() -> bool:
            return process.poll() is not None or self.is_ready()

        name = type(self).__name__
        try:
            wait_for(is_ready_or_ended, f"answer of {name}", self.start_timeout_s)
        except AssertionError as error:
            self.kill()
            raise ServerFailed(f"{error}\n{self.log_tail()}") from error
        if process.poll() is not None:
            raise ServerFailed(f"{name} ended with {process.returncode}:\n{self.log_tail()}")

    def kill(self) -> None:
        """Kill the server and its child processes with SIGKILL, and wait for their end."""
        if self._process is None:
            return
        below = descendants(self._process.pid)
        self._process.kill()
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(self.stop_timeout_s)
        assert not survivors(below, self.stop_timeout_s)

    def stop(self) -> None:
        """Stop the server with SIGTERM, or SIGKILL if necessary, along with its child processes."""
        if self._process is None:
            return
        below = descendants(self._process.pid)
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(self.stop_timeout_s)
        self.kill()
        for process in survivors(below, 5.0):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def run(self, *command: str, timeout_s: float = 120.0) -> str:
        """Run a program to completion as the server's user and return its output.

        Raises:
            ServerFailed: it ended with another code than 0.
        """
        done = subprocess.run(
            self._as_user(command), capture_output=True, text=True, timeout=timeout_s, check=False,
            **self._popen_options(),
        )  # fmt: skip
        if done.returncode:
            raise ServerFailed(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return str(done.stdout)

    def own(self, *paths: Path) -> None:
        """Change the owner of test files to the server's user."""
        if self._account is not None:
            for path in paths:
                os.chown(path, self._account.pw_uid, self._account.pw_gid)

    @property
    def log_file(self) -> Path:
        """File with the server's output."""
        return self.directory / "server.log"

    def log_tail(self) -> str:
        """Return the end of the server's output."""
        if not self.log_file.exists():
            return "(no log)"
        return self.log_file.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _account(self) -> pwd.struct_passwd | None:
        if os.geteuid() != 0:
            return None
        try:
            return pwd.getpwnam(self.user)
        except KeyError:
            return pwd.getpwnam("nobody")

    def _as_user(self, command: Sequence[str]) -> list[str]:
        """Return a command that runs as the server's user and ends with its parent process.

        Not by Popen's `user`: with that Python forks and runs the handlers that libraries have for a fork, and gRPC's,
        which the client of one of the systems loads, now and then crash in the child.
        """
        setpriv = shutil.which("setpriv")  # of util-linux
        if setpriv is None:
            return list(command)
        account = self._account
        rights: list[str] = []
        if account is not None and not self.drops_rights:
            rights = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
        return [setpriv, *rights, "--pdeathsig", "KILL", "--", *command]

    def _popen(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._popen_options()
            )  # fmt: skip

    def _popen_options(self) -> dict[str, Any]:
        account = self._account
        options: dict[str, Any] = {
            "cwd": self.directory,
            "env": {**os.environ, "HOME": str(self.directory), **self.environment()},
            "start_new_session": True,
        }
        if account is not None and self.drops_rights:
            numbers = {"MAGNETAR_TEST_UID": str(account.pw_uid), "MAGNETAR_TEST_GID": str(account.pw_gid)}
            options["env"] |= numbers
        return options
