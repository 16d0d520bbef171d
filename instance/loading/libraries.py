"""Adds installed requirements to the search path of a process, after its Python environment.

Design: all functions in a process share the search path and the modules, one per name; so two versions of a
distribution in one process are rejected, because one of the functions would get the wrong one.
"""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from ...errors import FunctionLoadError


class Libraries:
    """Directories of installed requirements on this process's search path, and the functions that use them."""

    def __init__(self) -> None:
        """Create an empty set."""
        self._versions: dict[Path, dict[str, str]] = {}
        self._used: dict[str, Path] = {}
        self._lock = threading.Lock()

    def use(self, function: str, directory: Path | None, *, displaces: bool = False) -> None:
        """Add a directory to the end of the search path, as the only one of a function.

        Args:
            function: function name.
            directory: directory of its requirements, or None.
            displaces: drop conflicting versions brought in by earlier functions, which are not in use.

        Raises:
            FunctionLoadError: another version of one of them is loaded.
        """
        with self._lock:
            self._used.pop(function, None)
            if directory is None:
                return
            brought = versions(directory)
            check_environment(function, brought, self._versions)
            for place in list(self._versions):
                self._make_room(function, brought, place, displaces)
            self._used[function] = directory
            self._versions[directory] = brought
            if str(directory) not in sys.path:
                sys.path.append(str(directory))
            importlib.invalidate_caches()

    def release(self, function: str) -> None:
        """Record that a function has been removed; its libraries stay until another function needs other versions."""
        with self._lock:
            self._used.pop(function, None)

    def has(self, function: str, directory: Path | None) -> bool:
        """Return whether a function uses this directory."""
        return self._used.get(function) == directory

    def is_here(self, directory: Path) -> bool:
        """Return whether modules of a directory may be loaded."""
        return directory in self._versions

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


# The search path and the modules belong to the process, and so does this record of them.
LIBRARIES = Libraries()


def check_environment(function: str, brought: Mapping[str, str], places: Collection[Path] = ()) -> None:
    """Reject distributions of which the Python environment, which takes precedence, has another version.

    Args:
        function: name of the function with these requirements.
        brought: versions by name, as of `versions`.
        places: directories on the search path that are not part of the environment.

    Raises:
        FunctionLoadError: there is one.
    """
    from importlib.metadata import distributions  # imports zipfile and csv, so only for functions with requirements

    own = [place for place in sys.path if Path(place) not in places]
    for name, version in brought.items():
        there = next((found.version for found in distributions(name=name, path=own)), version)
        if there != version:
            raise FunctionLoadError(
                f"function {function} requires {name} {version}, and the Python environment at {sys.prefix} has"
                f" {name} {there}, which comes first; require {name}=={there}, or put its modules into the package"
            )


def versions(directory: Path) -> dict[str, str]:
    """Return the versions of the distributions in a directory, by normalised name."""
    from importlib.metadata import distributions

    found = distributions(path=[str(directory)])
    return {re.sub(r"[-_.]+", "-", one.name).lower(): one.version for one in found}


def _loaded_from(directory: Path) -> Iterator[tuple[str, str]]:
    """Yield names and files of modules that were loaded from a directory."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and Path(file).is_relative_to(directory):
            yield name, file
