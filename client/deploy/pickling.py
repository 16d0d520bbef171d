"""Pickles a function together with everything it needs that workers do not have.

Design: cloudpickle pickles definitions of a script or notebook by value, and all others by name. That suits installed
packages and the standard library. User modules (`LocalModules`), which workers do not have, must also be pickled by
value if the function refers to them. A module imported inside a function's body does not appear in its globals, so the
code is searched for imports, and such modules follow the function in the stream.

Unpicklable objects are rejected before anything is sent, and named as in the author's code (`find_unpicklable`).
"""

from __future__ import annotations

import dataclasses
import dis
import importlib.machinery
import importlib.util
import io
import pickle
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle
from cloudpickle.cloudpickle import dynamic_subimport

from ...errors import UnpicklableFunction
from .annotations import resolved_annotations
from .local_modules import LocalModules
from .unpicklable import find_unpicklable

_MODULE_STATE_LEFT_OUT = ("__builtins__", "__cached__", "__loader__", "__spec__")
_REASON_CHARACTERS_MAX = 300
_REMEDY = "create it inside the function, or in the __init__ of a class with process(self, input, context)"


def pickle_function(function: Any, name: str) -> bytes:
    """Return the pickles of a function, its annotations, and the modules that it imports, terminated by an empty dict.

    Args:
        function: any callable.
        name: the function's name in error messages.

    Raises:
        UnpicklableFunction: a part cannot be pickled; the message names it.
    """
    stream = io.BytesIO()
    local = LocalModules()
    with local.go_by_value():
        pickler = _Pickler(stream, local)
        try:
            pickler.dump(function)
            pickler.dump(resolved_annotations(function, pickler.is_by_value))
            sent: set[str] = set()
            while new := {key: module for key, module in pickler.imported.items() if key not in sent}:
                sent |= new.keys()
                pickler.dump(new)
            pickler.dump({})
        except Exception as error:  # any exception of an object's __reduce__
            parts = (function, *pickler.imported.values())
            found = next(
                filter(None, (find_unpicklable(part, lambda one: _why_not(one, local), local) for part in parts)), ""
            )
            reason = found or f"{type(error).__name__}: {_one_line(error)}"
            raise UnpicklableFunction(f"cannot pickle function {name}: {reason}: {_REMEDY}") from error
    return stream.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """cloudpickle's pickler, extended to follow imports inside functions and to reject files.

    Attributes:
        imported: user modules that functions import when called, by name.
    """

    def __init__(self, stream: Any, local: LocalModules) -> None:
        super().__init__(stream, pickle.DEFAULT_PROTOCOL)
        self.imported: dict[str, ModuleType] = {}
        self._local = local

    def reducer_override(self, obj: Any) -> Any:
        """Handle special objects (called by pickle)."""
        if obj is dataclasses.MISSING:
            return "MISSING"  # by name: dataclasses compare it by identity, and cloudpickle would create a copy
        if isinstance(obj, io.TextIOWrapper) and obj not in (sys.stdin, sys.stdout, sys.stderr):
            raise TypeError("cannot pickle an open file")  # cloudpickle would send its whole content
        if isinstance(obj, ModuleType | BuiltinFunctionType):
            self._refuse_compiled(obj)
        if isinstance(obj, ModuleType) and obj in self._local:
            # Unlike in cloudpickle, the state is separate from construction, so that cyclic imports work.
            state = {name: value for name, value in vars(obj).items() if name not in _MODULE_STATE_LEFT_OUT}
            return dynamic_subimport, (obj.__name__, {}), state
        if isinstance(obj, FunctionType) and self.is_by_value(obj):
            self._follow_imports(obj)
        return super().reducer_override(obj)

    def is_by_value(self, part: Any) -> bool:
        """Return whether a function or class is pickled by value rather than by name."""
        module = sys.modules.get(part.__module__ or "__main__")
        return module is None or module.__name__ == "__main__" or module in self._local

    def _refuse_compiled(self, part: ModuleType | BuiltinFunctionType) -> None:
        module = part if isinstance(part, ModuleType) else sys.modules.get(part.__module__ or "")
        file = getattr(module, "__file__", None) or ""
        if (
            module is not None
            and file.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
            and module in self._local
        ):
            raise TypeError(f"cannot pickle the compiled module {module.__name__}: install it here and on the workers")

    def _follow_imports(self, function: FunctionType) -> None:
        for name in _imported_names(function.__code__, function.__globals__.get("__package__") or ""):
            if self._local.find(name) is None:
                continue
            self._local.take_loaded()
            parts = name.split(".")
            for length in range(1, len(parts) + 1):
                whole = ".".join(parts[:length])
                self.imported.setdefault(whole, sys.modules[whole])


def _imported_names(code: CodeType, package: str) -> Iterator[str]:
    """Yield the full names of the modules in the import statements of a function's body."""
    before: list[Any] = []  # constants loaded by the previous instructions: level and fromlist
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME" and len(before) >= 2:
            level, names = before[-2:]
            try:
                whole = importlib.util.resolve_name("." * level + instruction.argval, package)
            except (ImportError, TypeError):
                continue  # also fails on the worker
            yield whole
            yield from (f"{whole}.{name}" for name in names or () if name != "*")
        if instruction.opname != "EXTENDED_ARG":
            before.append(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imported_names(constant, package)


def _why_not(part: Any, local: LocalModules) -> str:
    """Return the reason why an object cannot be pickled, or an empty string."""
    try:
        _Pickler(_Nowhere(), local).dump(part)
    except Exception as error:  # noqa: BLE001  any exception of an object's __reduce__ is the reason
        return _one_line(error) or type(error).__name__
    return ""


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:_REASON_CHARACTERS_MAX]


class _Nowhere(io.RawIOBase):
    """Discards everything that is written."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(memoryview(data).cast("B"))
