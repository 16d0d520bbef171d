"""Where the modules of a package lie, and making a whole process import from there."""

from __future__ import annotations

import importlib
import importlib.machinery
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

from ...api.serde import PickleSerDe, SerDe
from ...errors import FunctionLoadError
from .own_imports import OwnImports
from .steps import Loading

REQUIREMENTS = "requirements.txt"
WHEELS = "deps"
"""Beside the requirements: wheels that they are installed from, without an index."""


def requirements_of(package: Path) -> Path | None:
    """Return the requirements.txt of an extracted package, which lies beside or above its modules; None without one."""
    directory = package.parent if package.name == "src" else package
    return directory / REQUIREMENTS if (directory / REQUIREMENTS).is_file() else None


def module_root(package: Path) -> Path:
    """Return the directory that modules of a package are imported from.

    Raises:
        FunctionLoadError: there is no such file or directory.
    """
    if package.is_dir():
        return package
    if not package.is_file():
        raise FunctionLoadError(f"package {package} is not there")
    if package.suffix != ".py":
        raise FunctionLoadError(f"package {package.name} is neither a .py file nor a directory of modules")
    return package.parent


class ProcessHome:
    """A process of the function's own: modules are imported under their own names.

    Attributes:
        loading: what is being imported.
    """

    def __init__(self, package: Path) -> None:
        """Remember the package; nothing is imported yet."""
        self.loading = Loading()
        self._package = package
        self._is_ready = False

    def enter_thread(self) -> None:
        """Do nothing: the whole process is the function's."""

    def leave_thread(self) -> None:
        """Do nothing."""

    def pickle_serde(self) -> SerDe:
        """Return the plain one."""
        return PickleSerDe()

    def import_module(self, name: str) -> ModuleType:
        """Return a module of the package."""
        if not self._is_ready:
            self._is_ready = True
            root = module_root(self._package)
            self._make_room(root)
            sys.path.insert(0, str(root))
        return importlib.import_module(name)

    def _make_room(self, root: Path) -> None:
        """Forget modules that this process has loaded under names of the package's own.

        We keep what we use of them; user code gets what it brought. Modules of the standard library stay: too much
        of it holds on to its own parts.
        """
        names = set()
        for name in (found.name for found in pkgutil.iter_modules([str(root)])):
            if name not in sys.modules or name not in sys.stdlib_module_names:
                names.add(name)
                continue
            print(  # noqa: T201  goes to the instance's log
                f"warning: module {name!r} of the package has the name of a standard library module that is"
                " loaded already, which is used instead; rename it",
                file=sys.stderr,
            )
        if any(name in sys.modules or _is_elsewhere(name) for name in names):
            OwnImports(names, str(root)).install()


def _is_elsewhere(name: str) -> bool:
    """Return whether a module of this name would be found without the package."""
    return importlib.machinery.PathFinder.find_spec(name, sys.path) is not None or name in sys.stdlib_module_names
