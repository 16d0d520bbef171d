"""Install a package's requirements.txt once per machine, for all functions with the same requirements.

Design: pip installs into a directory named after the requirements, so that functions, processes and runs share it; the
name includes the tenant unless the file alone determines the result (see `requirement_files`). The directory is filled
under a temporary name and then renamed, so it is complete or absent. Installing or removing it requires an exclusive
lock, using it a shared one; the kernel releases locks when the process ends. pip holds the lock together with the
process that started it, so an orphaned pip cannot write into a directory that another process has taken over.

pip runs code of the packages that it builds. If a user is configured, pip runs as that user, in a directory of that
user, and the result is copied file by file, so that files which instances load and the worker reads cannot be changed
afterwards. The user cannot open, and so cannot lock, the directory with the lock.
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
"""Installations unused for this time are removed at the next installation."""
_POLL_S = 0.1
_CAUSE_CHARACTERS = 300
_FRESH = ".fresh-"
_NO_PIP = "No module named pip"
_LIBRARIES, _WORK = "lib", "work"
_WITHOUT_GAIN = (
    "import ctypes, os, signal, sys; prctl = ctypes.CDLL(None).prctl; prctl(1, signal.SIGKILL, 0, 0, 0);"
    " prctl(38, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Program that makes the kernel kill it when its parent ends (PR_SET_PDEATHSIG), prevents gaining privileges
(PR_SET_NO_NEW_PRIVS), and executes its arguments.
"""


class Installed:
    """Installed requirements, which are not removed until `release`.

    Attributes:
        directory: directory for the search path.
    """

    def __init__(self, directory: Path, lock: int) -> None:
        """Take over the descriptor that holds the lock."""
        self.directory = directory
        self._lock = lock

    def release(self) -> None:
        """Allow removing the installation."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def __del__(self) -> None:
        """Release an installation that its caller has abandoned."""
        self.release()


@dataclass(frozen=True)
class Installer:
    """Installs requirements below a directory.

    Attributes:
        directory: parent directory of all installations.
        is_wanted: pip is killed when this returns false.
        timeout_s: time limit for pip.
        unused_s: installations unused for this time are removed at the next installation.
        user: system user for pip; None for this process's user.
        tenant: tenant of the functions to install for.
    """

    directory: Path
    is_wanted: Callable[[], bool] = lambda: True
    timeout_s: float = INSTALL_S
    unused_s: float = UNUSED_S
    user: SystemUser | None = None
    tenant: str = ""

    def find(self, requirements: Path) -> Installed | None:
        """Return the existing installation of a requirements.txt, or None; blocking."""
        try:
            found = self._hold(self.target_of(requirements))
            if found is None and origin_of(requirements) is Origin.INDEX:
                found = self._hold(
                    self.directory / digest_of(requirements)
                )  # installed by an earlier version, for all tenants
            return found
        except OSError as error:
            raise self._trouble(requirements, error) from error

    def install(self, requirements: Path) -> Installed:
        """Return the installation of a requirements.txt, installing it if needed; blocking.

        Raises:
            FunctionLoadError: installation failed or was cancelled.
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
        """Remove unused and unfinished installations, except those in ``needed``; blocking.

        Args:
            needed: digests to keep, as returned by `digest_of`.
        """
        if self.directory.is_dir():
            for found in self.directory.iterdir():
                if found.name.partition("-")[0] not in needed:
                    _remove(found)

    def _trouble(self, requirements: Path, error: OSError) -> FunctionLoadError:
        return FunctionLoadError(
            f"cannot install {requirements.name} under {self.directory}: {error.strerror or error}; free disk space, or"
            " fix the permissions of the directory"
        )

    def _hold(self, target: Path) -> Installed | None:
        lock = _locked(target, fcntl.LOCK_SH)  # another process holds the exclusive lock only briefly
        if lock is None:
            return None
        with contextlib.suppress(OSError):  # the time only matters for removing unused installations
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
            for left in fresh.iterdir():  # left by a killed installation
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
                raise FunctionLoadError(f"{requirements.name} was not installed: the function was removed meanwhile")
            if time.monotonic() > deadline:
                raise FunctionLoadError(
                    f"cannot install {requirements.name}: another process has been installing it in {fresh} for"
                    f" {self.timeout_s:g} s; end that process"
                )
            time.sleep(_POLL_S)

    def _run_pip(self, requirements: Path, target: Path, lock: int) -> None:
        # -P: keeps pip from importing modules of the package, its working directory (because of relative paths).
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
                f"cannot install {requirements.name} of the package: {reason}; install pip with"
                f" {sys.executable} -m ensurepip, or include the modules in the package"
            )
        if reason:
            raise FunctionLoadError(
                f"cannot install {requirements.name} of the package: {reason}; fix it, put wheels for Python"
                f" {sys.version_info[0]}.{sys.version_info[1]} into {WHEELS}/ beside it, or allow this machine to reach"
                " its index"
            )

    def _wait(self, pip: subprocess.Popen[bytes]) -> str:
        """Wait for pip to finish; return why it was killed, or an empty string."""
        deadline_s = time.monotonic() + self.timeout_s
        try:
            while pip.poll() is None:
                if not self.is_wanted():
                    return "the function was removed meanwhile"
                if time.monotonic() > deadline_s:
                    return f"pip did not finish within {self.timeout_s:g} s"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pip.wait(_POLL_S)
            return ""
        finally:
            if pip.returncode is None:
                os.killpg(pip.pid, signal.SIGKILL)  # including build processes started by pip
                pip.wait()

    def _sweep(self) -> None:
        """Remove installations unused for `unused_s`, and those of killed processes."""
        now_s = time.time()
        for found in self.directory.iterdir():
            with contextlib.suppress(FileNotFoundError):  # removed by another process
                is_old = now_s - found.stat().st_mtime > self.unused_s and not LIBRARIES.is_here(found)
                if is_old or found.name.startswith(_FRESH):
                    _remove(found)


def _locked(directory: Path, how: int) -> int | None:
    """Lock a directory and return its descriptor; None if it is missing or locked by another process."""
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
    """Remove a directory that is not locked; errors are ignored, and the next sweep retries."""
    with contextlib.suppress(OSError):
        lock = _locked(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            return
        try:
            if not found.name.startswith(_FRESH):  # rename first: a partial installation must never be used
                found = found.rename(found.with_name(f"{_FRESH}{uuid.uuid4().hex}"))
            _remove_all(found)
        finally:
            os.close(lock)


def _remove_all(directory: Path) -> None:
    """Remove a directory of this process's user; contents of another user are removed as that user."""
    with contextlib.suppress(OSError):
        for found in directory.iterdir():
            remove_tree(found)
    shutil.rmtree(directory, ignore_errors=True)


def _as_user(user: SystemUser, command: list[str], home: str) -> tuple[list[str], dict[str, Any]]:
    """Return command line and `Popen` arguments to run a command as a user, without gaining privileges."""
    environment = {**clean_environment(os.environ), "HOME": home, "TMPDIR": home, "USER": user.name}
    identity = {"user": user.uid, "group": user.gid, "extra_groups": (), "umask": 0o077}
    return [sys.executable, "-I", "-S", "-c", _WITHOUT_GAIN, *command], {"env": environment, **identity}


def digest_of(requirements: Path) -> str:
    """Return a digest of everything that determines the result of a requirements.txt.

    It covers the text files next to it and the wheels, or all files of the package if it names any of them.
    """
    import sysconfig  # only needed for functions with requirements

    digest = hashlib.sha256(f"{sys.implementation.cache_tag}\0{sysconfig.get_platform()}\0".encode())
    if origin_of(requirements) is Origin.PACKAGE:
        files = {file for file in requirements.parent.rglob("*") if file.is_file() and file.suffix != ".pyc"}
    else:
        wheels = (file for file in (requirements.parent / WHEELS).rglob("*") if file.is_file())
        files = {*requirements.parent.glob("*.txt"), *wheels}  # files may include each other
    for file in sorted(files):
        name, content = file.relative_to(requirements.parent).as_posix(), file.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _cause(said: str) -> str:
    """Return the most informative line of pip's output."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["pip failed without output"]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines)[-1][:_CAUSE_CHARACTERS]
