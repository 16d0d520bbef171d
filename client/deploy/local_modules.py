"""Detection of user modules, which workers do not have, so that cloudpickle pickles them by value."""

from __future__ import annotations

import importlib
import importlib.util
import os
import site
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import cloudpickle

_OWN_PACKAGE = __name__.partition(".")[0]
_INSTALLED_FOLDERS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_REGISTRY = threading.RLock()
"""Protects cloudpickle's global list of modules to pickle by value. Reentrant, because a module that is imported
while a function is pickled may itself deploy one."""


class LocalModules:
    """User modules, which are neither built in, nor in the standard library, nor installed.

    Editable installations count as user modules, as workers may lack them.
    """

    def __init__(self) -> None:
        """Find the interpreter's directories for installed packages."""
        paths = sysconfig.get_paths()
        folders = [*(paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")), *site.getsitepackages()]
        self._folders = tuple({os.path.join(folder, "") for folder in folders})
        self._by_value: list[ModuleType] = []

    def __contains__(self, module: object) -> bool:
        """Whether a module is a user module."""
        name = getattr(module, "__name__", None) or "__main__"
        if name == "__main__" or name.partition(".")[0] == _OWN_PACKAGE:
            return False  # __main__ is always pickled by value; this package is on each worker
        file = getattr(module, "__file__", None)
        return self._has_place([file] if file else list(getattr(module, "__path__", None) or ()))

    def _has_place(self, places: list[str]) -> bool:
        return bool(places) and not any(
            place.startswith(self._folders) or any(folder in place for folder in _INSTALLED_FOLDERS)
            for place in map(str, places)
        )

    def find(self, name: str) -> ModuleType | None:
        """Return a user module by name, importing it if necessary, or None if the name is not a user module."""
        top, parent, own = name.partition(".")[0], *name.rpartition(".")[::2]
        if top in sys.stdlib_module_names or top in (_OWN_PACKAGE, "__main__"):
            return None
        if parent and name not in sys.modules and hasattr(sys.modules.get(parent), own):
            return None  # `from module import thing`
        try:
            spec = importlib.util.find_spec(top)
            if spec is None or not self._has_place(
                [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
            ):
                return None
            return importlib.import_module(name)
        except (ImportError, ValueError):  # ValueError: a module without a spec
            return None  # the module may be optional; if not, the worker reports the error as this process would

    @contextmanager
    def go_by_value(self) -> Iterator[None]:
        """Context in which cloudpickle pickles user modules by value."""
        with _REGISTRY:
            try:
                self.take_loaded()
                yield
            finally:
                for module in self._by_value:
                    cloudpickle.unregister_pickle_by_value(module)
                self._by_value.clear()

    def take_loaded(self) -> None:
        """Update the list after other modules have been imported."""
        known = cloudpickle.list_registry_pickle_by_value()
        for name, module in list(sys.modules.items()):
            if isinstance(module, ModuleType) and module.__name__ == name and name not in known and module in self:
                cloudpickle.register_pickle_by_value(module)
                self._by_value.append(module)
