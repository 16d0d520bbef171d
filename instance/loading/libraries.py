"""Add installed requirements to the search path of a process, after its Python environment.

Design: all functions in a process share the search path, and one module per name. So two versions of a distribution in
one process are rejected, because one of the functions would get the wrong version.
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
    """The installed requirements on this process's search path, and the functions that use them."""

    def __init__(self) -> None:
        """Create an empty set."""
        self._versions: dict[Path, dict[str, str]] = {}
        self._used: dict[str, Path] = {}
        self._lock = threading.Lock()

    def use(self, function: str, directory: Path | None, *, displaces: bool = False) -> None:
        """Append a directory to the search path, replacing an earlier one of the function.

        Args:
            function: function name.
            directory: directory of its requirements, or None.
            displaces: whether to drop conflicting versions of other functions, which are not running.

        Raises:
            FunctionLoadError: a conflicting version of a distribution is loaded.
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
        """Release a removed function's libraries, which remain until another function needs other versions."""
        with self._lock:
            self._used.pop(function, None)

    def has(self, function: str, directory: Path | None) -> bool:
        """Return whether a function uses a directory."""
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
                f"function {function} requires {name} {brought[name]}, but function {users[0]} loaded {name}"
                f" {theirs[name]} into the same process: require the same version in both, or include its modules in"
                " one of the packages"
            )
        loaded = dict(_loaded_from(place))
        if any(file.endswith(tuple(EXTENSION_SUFFIXES)) for file in loaded.values()):
            raise FunctionLoadError(
                f"function {function} requires {name} {brought[name]}, but extension modules of {name} {theirs[name]}"
                " are loaded and cannot be replaced: restart the worker"
            )
        for module in loaded:
            del sys.modules[module]
        for user in users:
            del self._used[user]
        del self._versions[place]
        sys.path[:] = [entry for entry in sys.path if entry != str(place)]


# One per process, like the search path and the modules.
LIBRARIES = Libraries()


def check_environment(function: str, brought: Mapping[str, str], places: Collection[Path] = ()) -> None:
    """Reject distributions that the Python environment, which takes precedence, has in another version.

    Args:
        function: name of the function with these requirements.
        brought: versions by name, as returned by `versions`.
        places: directories on the search path that are not part of the environment.

    Raises:
        FunctionLoadError: the environment has another version.
    """
    from importlib.metadata import distributions  # imports zipfile and csv, so only for functions with requirements

    own = [place for place in sys.path if Path(place) not in places]
    for name, version in brought.items():
        there = next((found.version for found in distributions(name=name, path=own)), version)
        if there != version:
            raise FunctionLoadError(
                f"function {function} requires {name} {version}, but the Python environment at {sys.prefix} has"
                f" {name} {there}, which takes precedence: require {name}=={there}, or include its modules in the"
                " package"
            )


def versions(directory: Path) -> dict[str, str]:
    """Return the versions of the distributions in a directory, by normalised name."""
    from importlib.metadata import distributions

    found = distributions(path=[str(directory)])
    return {re.sub(r"[-_.]+", "-", one.name).lower(): one.version for one in found}


def _loaded_from(directory: Path) -> Iterator[tuple[str, str]]:
    """Yield the names and files of modules loaded from a directory."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and Path(file).is_relative_to(directory):
            yield name, file
