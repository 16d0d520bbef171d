"""Turns a function that lives in this process into bytes, with everything it needs that workers do not have.

Design: cloudpickle writes by value what was defined in a script or notebook, and refers to the rest by name. By name is
right for installed packages and the standard library; `LocalModules`, which no worker has, are written by value as
well, for as far as the function reaches into them. A module that is imported inside a function's body leaves no trace
among its globals, so the code is searched for imports, and such modules follow the function in the stream.

What cannot be pickled is refused here, before anything is sent, by the name that the author knows it by
(`find_unpicklable`).
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
_REMEDY = "make it inside the function, or in the __init__ of a class with process(self, input, context)"


def pickle_function(function: Any, name: str) -> bytes:
    """Return the pickles of a function, of its annotations, and of the modules that it imports, ended by an empty dict.

    Args:
        function: anything that can be called.
        name: the function's name, for messages.

    Raises:
        UnpicklableFunction: names the part that cannot be pickled.
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
        except Exception as error:  # whatever an object's own __reduce__ raises
            parts = (function, *pickler.imported.values())
            found = next(
                filter(None, (find_unpicklable(part, lambda one: _why_not(one, local), local) for part in parts)), ""
            )
            reason = found or f"{type(error).__name__}: {_one_line(error)}"
            raise UnpicklableFunction(f"function {name} cannot be pickled: {reason}; {_REMEDY}") from error
    return stream.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """cloudpickle's, which also follows imports inside functions and refuses files.

    Attributes:
        imported: local modules that functions import when they are called, by name.
    """

    def __init__(self, stream: Any, local: LocalModules) -> None:
        super().__init__(stream, pickle.DEFAULT_PROTOCOL)
        self.imported: dict[str, ModuleType] = {}
        self._local = local

    def reducer_override(self, obj: Any) -> Any:
        """See pickle."""
        if obj is dataclasses.MISSING:
            return "MISSING"  # by name: dataclasses compare it by identity, and cloudpickle would make another one
        if isinstance(obj, io.TextIOWrapper) and obj not in (sys.stdin, sys.stdout, sys.stderr):
            raise TypeError("cannot pickle an open file")  # cloudpickle would send all that it holds
        if isinstance(obj, ModuleType | BuiltinFunctionType):
            self._refuse_compiled(obj)
        if isinstance(obj, ModuleType) and obj in self._local:
            # State apart from the making, unlike cloudpickle's own way: modules that import each other are no circle.
            state = {name: value for name, value in vars(obj).items() if name not in _MODULE_STATE_LEFT_OUT}
            return dynamic_subimport, (obj.__name__, {}), state
        if isinstance(obj, FunctionType) and self.is_by_value(obj):
            self._follow_imports(obj)
        return super().reducer_override(obj)

    def is_by_value(self, part: Any) -> bool:
        """Return whether a function or class is sent itself, not by its name."""
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
            raise TypeError(f"module {module.__name__} is compiled; install it here and where the workers run")

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
    """Yield the whole names of the modules that import statements in a function's body name."""
    before: list[Any] = []  # what the instructions before loaded: level and fromlist
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME" and len(before) >= 2:
            level, names = before[-2:]
            try:
                whole = importlib.util.resolve_name("." * level + instruction.argval, package)
            except (ImportError, TypeError):
                continue  # fails there as it does here
            yield whole
            yield from (f"{whole}.{name}" for name in names or () if name != "*")
        if instruction.opname != "EXTENDED_ARG":
            before.append(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imported_names(constant, package)


def _why_not(part: Any, local: LocalModules) -> str:
    """Return why an object cannot be pickled; empty if it can."""
    try:
        _Pickler(_Nowhere(), local).dump(part)
    except Exception as error:  # noqa: BLE001  whatever an object's own __reduce__ raises is the answer
        return _one_line(error) or type(error).__name__
    return ""


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:_REASON_CHARACTERS_MAX]


class _Nowhere(io.RawIOBase):
    """Takes everything and keeps nothing."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(memoryview(data).cast("B"))
