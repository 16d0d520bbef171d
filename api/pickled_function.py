"""Restores a function that was deployed as an object from its pickle.

`functions.deploy` sends a zip like any other package, so workers and runtimes need no special case. The deploying
client copies this file to the package as `MODULE`.py, appends one line that binds the function's name, and stores the
pickle next to it. This file therefore imports nothing from Magnetar, and its names start with an underscore, except for
the constants shared by worker and client.

Objects that were pickled by value must behave as if they had been imported here. cloudpickle alone would give restored
functions the builtins of the process, and share one class object among all functions that restore it. Either would let
a thread function escape from its own modules into those of other functions. The few cloudpickle functions responsible
are therefore replaced during unpickling. If a future version renames them, functions still work, but are less isolated.
"""

from __future__ import annotations

import abc as _abc
import importlib as _importlib
import importlib.util as _importlib_util
import pickle as _pickle
import sys as _sys
import types as _types
from collections.abc import Callable as _Callable
from collections.abc import Mapping as _Mapping
from collections.abc import Sequence as _Sequence
from pathlib import Path as _Path
from typing import Any as _Any

MODULE = "magnetar_deployed"
PICKLE_FILE = "function.pkl"
VERSION_FILE = "function.python"
"""File with the Python version that pickled the function, as in 3.11. Pickled code runs on no other version."""


def version_refusal(pickled_by: str) -> str:
    """Return why a function pickled by a Python version such as 3.11 cannot run here, or an empty string."""
    here = f"{_sys.version_info.major}.{_sys.version_info.minor}"
    if pickled_by == here:
        return ""
    return (
        f"the function was deployed from Python {pickled_by}, but the workers run Python {here}, which cannot load its "
        f"code: deploy it from Python {here}, or as a .py file"
    )


def _load(pickled_by: str) -> _Any:
    """Return the function pickled next to this module."""
    reason = version_refusal(pickled_by)
    if reason:
        raise ImportError(reason)
    with _Path(__file__).with_name(PICKLE_FILE).open("rb") as file:
        unpickler = _Unpickler(file)
        function = unpickler.load()
        for part, annotations in unpickler.load():
            part.__annotations__ = annotations  # as strings they would refer to a module that does not exist here
        while modules := unpickler.load():
            unpickler.modules.update(modules)
    return function


class _Unpickler(_pickle.Unpickler):
    """Restores cloudpickle output with this module's builtins and imports.

    Attributes:
        modules: modules, by name, that functions import when they are called.
    """

    def __init__(self, file: _Any) -> None:
        super().__init__(file)
        self.modules: dict[str, _types.ModuleType] = {}
        own = globals()["__builtins__"]
        self._builtins: dict[str, _Any] = dict(own if isinstance(own, dict) else vars(own))
        self._import_before: _Callable[..., _Any] = self._builtins["__import__"]
        self._builtins["__import__"] = self._import

    def find_class(self, module: str, name: str) -> _Any:
        """Find a class through this module's own ``importlib``, which resolves ``pulsar`` correctly here."""
        found: _Any = _importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        if module.partition(".")[0] == "cloudpickle":
            return self._replaced(name, found)
        return found

    def _replaced(self, name: str, theirs: _Callable[..., _Any]) -> _Callable[..., _Any]:
        if name == "subimport":
            return _importlib.import_module
        if name == "_make_function":
            return self._make_function
        if name == "_function_setstate":

            def set_state(function: _types.FunctionType, state: _Any) -> None:
                theirs(function, state)
                function.__globals__["__builtins__"] = self._builtins

            return set_state
        if name == "_class_setstate":
            # The function may derive from the official client's Function, which is not abstract, unlike ours.
            return lambda kind, state: _abc.update_abstractmethods(theirs(kind, state))
        if name in ("_make_skeleton_class", "_make_skeleton_enum"):
            # Without the ID before the last argument, a class is created instead of looked up.
            return lambda *arguments: theirs(*arguments[:-2], None, arguments[-1])
        return theirs

    def _make_function(
        self, code: _types.CodeType, namespace: dict[str, _Any], name: str, defaults: _Any, closure: _Any
    ) -> _types.FunctionType:
        namespace["__builtins__"] = self._builtins
        return _types.FunctionType(code, namespace, name, defaults, closure)

    def _import(
        self,
        name: str,
        namespace: _Mapping[str, _Any] | None = None,
        local: _Mapping[str, _Any] | None = None,
        fromlist: _Sequence[str] | None = (),
        level: int = 0,
    ) -> _Any:
        """Replacement for ``__import__`` in restored functions that finds the modules in the pickle."""
        package = (namespace or {}).get("__package__") or ""
        whole = _importlib_util.resolve_name("." * level + name, package) if level else name
        if whole not in self.modules:
            return self._import_before(name, namespace, local, fromlist or (), level)
        return self.modules[whole if fromlist else whole.partition(".")[0]]
