"""The requirements.txt of a package: installed once on the driver's machine, and put on the function's search path.

Design: pip installs into a directory that is named after what was asked for, so that functions, hosts and runs share
it. It goes with the package to the workers of Spark and stands at the end of their search path: what the environment
has comes first. A process has one such path for all functions in it, and one module of a name; so two versions of a
distribution in one process are refused, for one of the functions would work with what it did not ask for.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import distributions
from pathlib import Path

from ...errors import FunctionLoadError
from ...instance.loading.loader import WHEELS

INSTALL_S = 600.0
"""pip is ended after that."""
UNUSED_S = 7 * 24 * 3600.0
"""What no function was loaded with for so long is removed when something is installed."""
_POLL_S = 0.1
_CAUSE_CHARACTERS = 300
_FRESH = ".fresh-"


class Libraries:
    """Directories of installed requirements on the search path of this process, and the functions that use them."""

    def __init__(self) -> None:
        """Begin without any."""
        self._versions: dict[Path, dict[str, str]] = {}
        self._used: dict[str, Path] = {}
        self._lock = threading.Lock()

    def use(self, function: str, directory: Path | None, *, displaces: bool = False) -> None:
        """Put a directory at the end of the search path, for a function that has no other then.

        Args:
            function: by name.
            directory: of its requirements; None: it has none.
            displaces: what functions before it have brought in other versions is given up; they are not in use.

        Raises:
            FunctionLoadError: something in it is here in another version.
        """
        with self._lock:
            self._used.pop(function, None)
            if directory is None:
                return
            brought = _versions(directory)
            self._check_environment(function, brought)
            for place in list(self._versions):
                self._make_room(function, brought, place, displaces)
            self._used[function] = directory
            self._versions[directory] = brought
            if str(directory) not in sys.path:
                sys.path.append(str(directory))
            importlib.invalidate_caches()

    def release(self, function: str) -> None:
        """Note that a function has been removed; its libraries stay until another function needs other versions."""
        with self._lock:
            self._used.pop(function, None)

    def has(self, function: str, directory: Path | None) -> bool:
        """Return whether that is what a function uses."""
        return self._used.get(function) == directory

    def is_here(self, directory: Path) -> bool:
        """Return whether modules of a directory may be loaded."""
        return directory in self._versions

    def _check_environment(self, function: str, brought: dict[str, str]) -> None:
        own = [place for place in sys.path if Path(place) not in self._versions]
        for name, version in brought.items():
            there = next((found.version for found in distributions(name=name, path=own)), version)
            if there != version:
                raise FunctionLoadError(
                    f"function {function} requires {name} {version}, and the Python environment at {sys.prefix} has"
                    f" {name} {there}, which comes first; require {name}=={there}, or put its modules into the package"
                )

    def _make_room(self, function: str, brought: dict[str, str], place: Path, displaces: bool) -> None:
        theirs = self._versions[place]
        name = next((name for name, version in brought.items() if theirs.get(name, version) != version), None)
        if name is None:
            return
        users = [user for user, directory in self._used.items() if directory == place]
        if users and not displaces:
            raise FunctionLoadError(
                f"function {function} requires {name} {brought[name]}, and function {users[0]} has brought {name}"
                f" {theirs[name]} into the same process; require one version in both, or put its modules into one of"
                " the packages"
            )
        loaded = dict(_loaded_from(place))
        if any(file.endswith(tuple(EXTENSION_SUFFIXES)) for file in loaded.values()):
            raise FunctionLoadError(
                f"function {function} requires {name} {brought[name]}, and extension modules that came with {name}"
                f" {theirs[name]} are loaded and cannot be replaced; restart the worker"
            )
        for module in loaded:
            del sys.modules[module]
        for user in users:
            del self._used[user]
        del self._versions[place]
        sys.path[:] = [entry for entry in sys.path if entry != str(place)]


# The search path and the modules belong to the process, and so does what is known of them.
LIBRARIES = Libraries()


@dataclass(frozen=True)
class Installer:
    """Installs requirements below a directory.

    Attributes:
        directory: has one directory for each content.
        is_wanted: pip is ended when it is not true any more.
        timeout_s: pip is ended after that.
    """

    directory: Path
    is_wanted: Callable[[], bool] = lambda: True
    timeout_s: float = INSTALL_S

    def install(self, requirements: Path) -> Path:
        """Return the directory with what a requirements.txt asks for, installed there if it is not yet; blocking.

        Raises:
            FunctionLoadError: that was not possible, or is not wanted any more.
        """
        target = self.directory / _digest(requirements)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                self._sweep()
                self._make(requirements, target)
            os.utime(target)
        except OSError as error:
            raise FunctionLoadError(
                f"{requirements.name} cannot be installed below {self.directory}: {error.strerror or error}; make room"
                " there, or set the rights of the directory"
            ) from error
        return target

    def _make(self, requirements: Path, target: Path) -> None:
        fresh = Path(tempfile.mkdtemp(prefix=_FRESH, dir=self.directory))
        try:
            self._run_pip(requirements, fresh)
            try:
                fresh.rename(target)
            except OSError:
                if not target.exists():  # else another function was first
                    raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _run_pip(self, requirements: Path, target: Path) -> None:
        # -P: modules of the package, which is the working directory for the sake of relative paths, are not pip's.
        command = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--target", str(target), "-r", str(requirements)]
        wheels = requirements.parent / WHEELS
        if wheels.is_dir():
            command += ["--no-index", "--find-links", str(wheels)]
        with tempfile.TemporaryFile() as said:
            pip = subprocess.Popen(
                command, cwd=requirements.parent, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip
            reason = self._wait(pip)
            said.seek(0)
            if not reason and pip.returncode:
                reason = _cause(said.read().decode(errors="replace"))
        if reason:
            raise FunctionLoadError(
                f"{requirements.name} of the package cannot be installed: {reason}; correct it, put wheels for Python"
                f" {sys.version_info[0]}.{sys.version_info[1]} into {WHEELS}/ beside it, or let this machine reach its"
                " index"
            )

    def _wait(self, pip: subprocess.Popen[bytes]) -> str:
        """Return when pip has ended; says why if that was not by itself."""
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
                os.killpg(pip.pid, signal.SIGKILL)  # and what it has started to build
                pip.wait()

    def _sweep(self) -> None:
        """Delete directories unused for `UNUSED_S`, and those of installations that were killed."""
        now_s = time.time()
        for found in self.directory.iterdir():
            keep_s = 2 * self.timeout_s if found.name.startswith(_FRESH) else UNUSED_S
            if not LIBRARIES.is_here(found) and now_s - found.stat().st_mtime > keep_s:
                shutil.rmtree(found, ignore_errors=True)


def _digest(requirements: Path) -> str:
    digest = hashlib.sha256(f"{sys.implementation.cache_tag}\0".encode())
    wheels = (file for file in (requirements.parent / WHEELS).rglob("*") if file.is_file())
    for file in sorted((*requirements.parent.glob("*.txt"), *wheels)):  # one may name another
        name, content = file.relative_to(requirements.parent).as_posix(), file.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _cause(said: str) -> str:
    """Return the line of pip's output that says most."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["pip failed and said nothing"]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines)[-1][:_CAUSE_CHARACTERS]


def _versions(directory: Path) -> dict[str, str]:
    found = distributions(path=[str(directory)])
    return {re.sub(r"[-_.]+", "-", one.name).lower(): one.version for one in found}


def _loaded_from(directory: Path) -> Iterator[tuple[str, str]]:
    """Yield names and files of modules that were loaded from a directory."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and Path(file).is_relative_to(directory):
            yield name, file
