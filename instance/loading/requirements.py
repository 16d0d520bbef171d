"""Installs a package's requirements.txt once per machine, for all functions with the same requirements.

Design: pip installs into a directory named after the requirements, so that functions, processes and runs share it; the
name includes the tenant unless the text alone determines the result (see `requirement_files`). The directory is filled
under a temporary name and then renamed: it is complete or absent. Installing or removing it takes an exclusive lock,
using it a shared one; the kernel releases these when the process ends. pip holds the lock together with the process
that started it, so an orphaned pip cannot write into a directory that another process has taken over.

pip runs code of the packages that it builds. With a user configured it runs as that user, in a directory of that user,
and the result is copied file by file: files that instances load and the worker reads cannot be changed afterwards. The
user cannot open the directory with the lock, and so cannot lock it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import FunctionLoadError
from ..system_user import SystemUser, clean_environment
from ..trees import PASSAGE, READABLE, copy_regular, make_private, remove_tree
from .libraries import LIBRARIES
from .loader import WHEELS
from .requirement_files import Origin, origin_of

INSTALL_S = 600.0
"""Time limit for pip."""
UNUSED_S = 7 * 24 * 3600.0
"""Installations unused for this time are removed when something is installed."""
_POLL_S = 0.1
_CAUSE_CHARACTERS = 300
_FRESH = ".fresh-"
_NO_PIP = "No module named pip"
_LIBRARIES, _WORK = "lib", "work"
_WITHOUT_GAIN = (
    "import ctypes, os, signal, sys; prctl = ctypes.CDLL(None).prctl; prctl(1, signal.SIGKILL, 0, 0, 0);"
    " prctl(38, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Makes the kernel kill it with its parent (PR_SET_PDEATHSIG), and stops programs from gaining rights
(PR_SET_NO_NEW_PRIVS).
"""


class Installed:
    """Installed requirements, which are not removed before `release`.

    Attributes:
        directory: for the search path.
    """

    def __init__(self, directory: Path, lock: int) -> None:
        """Take over the descriptor that holds the lock."""
        self.directory = directory
        self._lock = lock

    def release(self) -> None:
        """Allow others to remove them."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def __del__(self) -> None:
        """Release an installation whose finder has stopped waiting for it."""
        self.release()


@dataclass(frozen=True)
class Installer:
    """Installs requirements below a directory.

    Attributes:
        directory: has one subdirectory per content.
        is_wanted: pip is killed when this returns false.
        timeout_s: time limit for pip.
        unused_s: installations unused for this time are removed when something is installed.
        user: user that pip runs as; None for this process's user.
        tenant: tenant of the functions that it installs for.
    """

    directory: Path
    is_wanted: Callable[[], bool] = lambda: True
    timeout_s: float = INSTALL_S
    unused_s: float = UNUSED_S
    user: SystemUser | None = None
    tenant: str = ""

    def find(self, requirements: Path) -> Installed | None:
        """Return the installation of a requirements.txt if it exists; blocking."""
        try:
            found = self._hold(self.target_of(requirements))
            if found is None and origin_of(requirements) is Origin.INDEX:
                found = self._hold(self.directory / digest_of(requirements))  # of an earlier version, for all tenants
            return found
        except OSError as error:
            raise self._trouble(requirements, error) from error

    def install(self, requirements: Path) -> Installed:
        """Return the installation of a requirements.txt, installing it if needed; blocking.

        Raises:
            FunctionLoadError: that failed, or was cancelled.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if self.user is not None:
                self.directory.chmod(READABLE)
            target = self.target_of(requirements)
            installed = self._hold(target)
            if installed is None:
                self._sweep()
            while installed is None:
                self._make(requirements, target)
                installed = self._hold(target)
            return installed
        except OSError as error:
            raise self._trouble(requirements, error) from error

    def target_of(self, requirements: Path) -> Path:
        """Return the directory that a requirements.txt is installed into."""
        digest = digest_of(requirements)
        if origin_of(requirements) is Origin.HASHES:
            return self.directory / digest
        return self.directory / f"{digest}-{hashlib.sha256(self.tenant.encode()).hexdigest()[:16]}"

    def remove_others(self, needed: Collection[str]) -> None:
        """Remove unused and unfinished installations except some; blocking.

        Args:
            needed: digests to keep, as of `digest_of`.
        """
        if self.directory.is_dir():
            for found in self.directory.iterdir():
                if found.name.partition("-")[0] not in needed:
                    _remove(found)

    def _trouble(self, requirements: Path, error: OSError) -> FunctionLoadError:
        return FunctionLoadError(
            f"{requirements.name} cannot be installed below {self.directory}: {error.strerror or error}; make room"
            " there, or set the rights of the directory"
        )

    def _hold(self, target: Path) -> Installed | None:
        lock = _locked(target, fcntl.LOCK_SH)  # a process that removes it, or has just created it, releases it soon
        if lock is None:
            return None
        with contextlib.suppress(OSError):  # its age only matters where unused ones are removed
            os.utime(target)
        return Installed(target if self.user is None else target / _LIBRARIES, lock)

    def _make(self, requirements: Path, target: Path) -> None:
        """Install the requirements, or wait for another process that is installing them."""
        fresh = target.with_name(_FRESH + target.name)
        fresh.mkdir(exist_ok=True)
        lock = _locked(fresh, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            self._wait_for_another(requirements, fresh)
            return
        try:
            if target.exists():
                return
            for left in fresh.iterdir():  # left by one that was killed
                remove_tree(left)
            if self.user is None:
                self._run_pip(requirements, fresh, lock)
            else:
                self._make_for(self.user, requirements, fresh, lock)
            fresh.rename(target)
        finally:
            _remove_all(fresh)
            os.close(lock)

    def _make_for(self, user: SystemUser, requirements: Path, fresh: Path, lock: int) -> None:
        fresh.chmod(PASSAGE)
        work = fresh / _WORK
        make_private(work, user)
        self._run_pip(requirements, work / _LIBRARIES, lock)
        copy_regular(work / _LIBRARIES, fresh / _LIBRARIES)
        remove_tree(work)

    def _wait_for_another(self, requirements: Path, fresh: Path) -> None:
        deadline = time.monotonic() + self.timeout_s
        while fresh.exists():
            lock = _locked(fresh, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock is not None:
                os.close(lock)
                return
            if not self.is_wanted():
                raise FunctionLoadError(f"{requirements.name} is not installed: the function was removed meanwhile")
            if time.monotonic() > deadline:
                raise FunctionLoadError(
                    f"{requirements.name} cannot be installed: another process has been at it in {fresh} for"
                    f" {self.timeout_s:g} s; end it"
                )
            time.sleep(_POLL_S)

    def _run_pip(self, requirements: Path, target: Path, lock: int) -> None:
        # -P: pip must not import modules of the package, which is the working directory because of relative paths.
        command = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--target", str(target), "-r", str(requirements)]
        wheels = requirements.parent / WHEELS
        if wheels.is_dir():
            command += ["--no-index", "--find-links", str(wheels)]
        how: dict[str, Any] = {"pass_fds": (lock,)}
        if self.user is not None:
            command, how = _as_user(self.user, [*command, "--no-cache-dir"], str(target.parent))
        with tempfile.TemporaryFile() as said:
            pip = subprocess.Popen(
                command, cwd=requirements.parent, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True, **how,
            )  # fmt: skip
            reason = self._wait(pip)
            said.seek(0)
            if not reason and pip.returncode:
                reason = _cause(said.read().decode(errors="replace"))
        if reason.endswith(_NO_PIP):
            raise FunctionLoadError(
                f"{requirements.name} of the package cannot be installed: {reason}; install it there by"
                f" {sys.executable} -m ensurepip, or put the modules themselves into the package"
            )
        if reason:
            raise FunctionLoadError(
                f"{requirements.name} of the package cannot be installed: {reason}; correct it, put wheels for Python"
                f" {sys.version_info[0]}.{sys.version_info[1]} into {WHEELS}/ beside it, or let this machine reach its"
                " index"
            )

    def _wait(self, pip: subprocess.Popen[bytes]) -> str:
        """Wait for the end of pip; return why it was ended, or an empty text."""
        deadline_s = time.monotonic() + self.timeout_s
        try:
            while pip.poll() is None:
                if not self.is_wanted():
                    return "the function was removed meanwhile"
                if time.monotonic() > deadline_s:
                    return f"pip did not end within {self.timeout_s:g} s"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pip.wait(_POLL_S)
            return ""
        finally:
            if pip.returncode is None:
                os.killpg(pip.pid, signal.SIGKILL)  # and the processes that it has started to build
                pip.wait()

    def _sweep(self) -> None:
        """Delete directories unused for `unused_s`, and those of installations that were killed."""
        now_s = time.time()
        for found in self.directory.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another process has removed it
                is_old = now_s - found.stat().st_mtime > self.unused_s and not LIBRARIES.is_here(found)
                if is_old or found.name.startswith(_FRESH):
                    _remove(found)


def _locked(directory: Path, how: int) -> int | None:
    """Return a descriptor with a lock on a directory; None if the directory is missing or locked by another process."""
    try:
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, how)
        if os.path.samestat(os.fstat(lock), os.stat(directory)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(lock)
        raise
    os.close(lock)
    return None


def _remove(found: Path) -> None:
    """Remove a directory that is not locked; on errors it is retried another time."""
    with contextlib.suppress(OSError):
        lock = _locked(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            return
        try:
            if not found.name.startswith(_FRESH):  # rename first: a partial one must never be used
                found = found.rename(found.with_name(f"{_FRESH}{uuid.uuid4().hex}"))
            _remove_all(found)
        finally:
            os.close(lock)


def _remove_all(directory: Path) -> None:
    """Remove a directory of this process's user; contents of another user as that user."""
    with contextlib.suppress(OSError):
        for found in directory.iterdir():
            remove_tree(found)
    shutil.rmtree(directory, ignore_errors=True)


def _as_user(user: SystemUser, command: list[str], home: str) -> tuple[list[str], dict[str, Any]]:
    """Return a command line and `Popen` arguments for a process that runs as a user and cannot gain rights."""
    environment = {**clean_environment(os.environ), "HOME": home, "TMPDIR": home, "USER": user.name}
    identity = {"user": user.uid, "group": user.gid, "extra_groups": (), "umask": 0o077}
    return [sys.executable, "-I", "-S", "-c", _WITHOUT_GAIN, *command], {"env": environment, **identity}


def digest_of(requirements: Path) -> str:
    """Return a digest of everything that a requirements.txt asks for.

    This is the text of the files beside it, and the wheels; if it names files of the package, all files of the package.
    """
    import sysconfig  # only needed for functions with requirements

    digest = hashlib.sha256(f"{sys.implementation.cache_tag}\0{sysconfig.get_platform()}\0".encode())
    if origin_of(requirements) is Origin.PACKAGE:
        files = {file for file in requirements.parent.rglob("*") if file.is_file() and file.suffix != ".pyc"}
    else:
        wheels = (file for file in (requirements.parent / WHEELS).rglob("*") if file.is_file())
        files = {*requirements.parent.glob("*.txt"), *wheels}  # one may include another
    for file in sorted(files):
        name, content = file.relative_to(requirements.parent).as_posix(), file.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _cause(said: str) -> str:
    """Return the most informative line of pip's output."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["pip failed and said nothing"]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines)[-1][:_CAUSE_CHARACTERS]
