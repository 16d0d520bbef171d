"""Serverless functions in Python on a bundled broker that speaks the Apache Pulsar protocol.

The public API is the names in ``__all__`` of this package, `magnetar.api` (for authors of functions and connectors),
`magnetar.client` (topics, and deployment from Python), `magnetar.spark` and `magnetar.testing`; everything else may
change. Names are imported on first use, so that function processes do not load the client.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api.batches import batch_function
    from .api.connector import Record, Sink, Source
    from .api.context import Context
    from .api.function import Function
    from .api.serde import IdentitySerDe, JsonSerDe, PickleSerDe, SerDe
    from .client.blocking import Client
    from .client.client import AsyncClient
    from .errors import MagnetarError

__version__ = "0.1.0"
__all__ = [
    "AsyncClient",
    "Client",
    "Context",
    "Function",
    "IdentitySerDe",
    "JsonSerDe",
    "MagnetarError",
    "PickleSerDe",
    "Record",
    "SerDe",
    "Sink",
    "Source",
    "batch_function",
]


def lazy_names(package: str, names: dict[str, Sequence[str]]) -> Callable[[str], object]:
    """Return a ``__getattr__`` for a package that imports its public names on first use.

    Args:
        package: the package's ``__name__``.
        names: module, relative to the package -> names in it.
    """

    def get(name: str) -> object:
        module = next((module for module, its in names.items() if name in its), None)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(module, package), name)
        vars(sys.modules[package])[name] = value
        return value

    return get


class LateModule(ModuleType):
    """Stand-in for a module that is imported when one of its names is first accessed."""

    def __getattr__(self, name: str) -> object:
        """Import the module, under the import system's locks, and return its attribute."""
        if "__path__" in vars(self) and PathFinder.find_spec(f"{self.__name__}.{name}", self.__path__) is not None:
            return importlib.import_module(f"{self.__name__}.{name}")  # a submodule, which may import others
        return getattr(self._real(), name)

    def __dir__(self) -> list[str]:
        """Return the names in the module."""
        return dir(self._real())

    def _real(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            sys.modules.pop(self.__name__, None)
        return importlib.import_module(self.__name__)


def late_module(name: str) -> None:
    """Defer the import of a module until one of its names is first accessed, even if libraries import it earlier.

    For modules that libraries import but servers rarely use. Does nothing if the module is already imported or not
    installed.

    Args:
        name: the module's dotted name; a module inside a package cannot have submodules. It is an attribute of its
            package only if the package was imported before; ``from package import module`` always finds it.
    """
    from importlib.util import find_spec

    package, _, child = name.rpartition(".")
    spec = ModuleSpec(name, None) if package else find_spec(name)  # find_spec would import the parent
    if name in sys.modules or spec is None:
        return
    stand_in = LateModule(name)
    stand_in.__spec__ = spec
    stand_in.__package__ = package or name
    if spec.submodule_search_locations is not None:  # submodules are found without it
        stand_in.__path__ = spec.submodule_search_locations
    sys.modules[name] = stand_in
    if package in sys.modules:
        setattr(sys.modules[package], child, stand_in)


if not TYPE_CHECKING:  # a type checker would accept any name as part of the package
    __getattr__ = lazy_names(
        __name__,
        {
            ".api.batches": ["batch_function"],
            ".api.connector": ["Record", "Sink", "Source"],
            ".api.context": ["Context"],
            ".api.function": ["Function"],
            ".api.serde": ["IdentitySerDe", "JsonSerDe", "PickleSerDe", "SerDe"],
            ".client.blocking": ["Client"],
            ".client.client": ["AsyncClient"],
            ".errors": ["MagnetarError"],
        },
    )


class _MovedModules:
    """Finds modules of this package by their names in earlier versions; used after all other finders."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a moved module (called by importlib)."""
        if not name.startswith("magnetar."):
            return None
        from .api.moved_modules import spec_of

        return spec_of(name)


sys.meta_path.append(_MovedModules)
if os.environ.get("MAGNETAR_PURE", "") not in ("", "0"):
    from .compiled import SourceFinder

    sys.meta_path.insert(0, SourceFinder)
