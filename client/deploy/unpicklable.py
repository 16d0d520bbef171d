"""Finds the part of a function that cannot be pickled, and names it as in the author's code.

Design: the search follows the names in the user's code (closures, globals, defaults, attributes of objects of user
classes, items of containers), descending into parts that cannot be pickled on their own. It stops at the first instance
of a library class: ``client`` is a useful answer, ``client._thread._lock`` is not.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable, Container, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

_DEPTH_MAX = 50
_KEY_CHARACTERS_MAX = 60
_NOT_THE_AUTHORS = ("__dict__", "__weakref__", "__builtins__", "__loader__", "__spec__", "_abc_impl")


class _Named(NamedTuple):
    """A part and its name: ``global variable`` ``prices['pear']`` `` of total``."""

    part: Any
    kind: str = ""
    path: str = ""
    owner: str = ""

    def inner(self, part: Any, path: str) -> _Named:
        return _Named(part, self.kind, f"{self.path}{path}", self.owner)


def find_unpicklable(function: Any, why_not: Callable[[Any], str], local: Container[ModuleType]) -> str:
    """Describe the part that cannot be pickled; return an empty string if no single part is the cause.

    Args:
        function: the unpicklable function.
        why_not: returns the reason why an object cannot be pickled, or an empty string.
        local: the user modules.
    """
    found, reason = _Named(function), why_not(function)
    seen = {id(function)}
    for _ in range(_DEPTH_MAX if reason else 0):
        for inner in _parts(found, local):
            if id(inner.part) in seen:
                continue
            seen.add(id(inner.part))
            if why := why_not(inner.part):
                found, reason = inner, why
                break
        else:
            break
    if found.part is function:
        return ""
    kind = type(found.part)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{found.kind} {found.path}{found.owner} has type {name} ({reason})"


def _parts(named: _Named, local: Container[ModuleType]) -> Iterator[_Named]:
    part = named.part
    match part:
        case FunctionType():
            yield from _function_parts(part)
        case MethodType():
            yield _Named(part.__self__, "object", part.__func__.__qualname__.rpartition(".")[0])
            yield named.inner(part.__func__, "")
        case functools.partial():
            yield named.inner(part.func, "")
            yield from (
                _Named(value, "argument", f"{index}", " of the partial") for index, value in enumerate(part.args)
            )
            yield from (_Named(value, "argument", name, " of the partial") for name, value in part.keywords.items())
        case dict():
            yield from (named.inner(value, f"[{_shown(key)}]") for key, value in part.items())
        case list() | tuple():
            yield from (named.inner(value, f"[{index}]") for index, value in enumerate(part))
        case ModuleType():
            if part in local:
                yield from (
                    _Named(value, "variable", name, f" of module {part.__name__}") for name, value in _own(part)
                )
        case type():
            if _is_own(part, local):
                yield from (_Named(base, "class", base.__name__) for base in part.__bases__)
                yield from (_Named(value, "attribute", f"{part.__name__}.{name}") for name, value in _own(part))
        case _:
            if _is_own(type(part), local):
                yield from (named.inner(value, f".{name}") for name, value in getattr(part, "__dict__", {}).items())
                yield _Named(type(part), "class", type(part).__name__)


def _function_parts(function: FunctionType) -> Iterator[_Named]:
    code, owner = function.__code__, f" of {function.__qualname__}"
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield _Named(cell.cell_contents, "closure variable", name, owner)
        except ValueError:
            continue  # not bound yet
    for name in dict.fromkeys(_names(code)):
        if name in function.__globals__:
            yield _Named(function.__globals__[name], "global variable", name, owner)
    defaults = function.__defaults__ or ()
    arguments = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    for name, value in (*zip(arguments, defaults, strict=True), *(function.__kwdefaults__ or {}).items()):
        yield _Named(value, "default value of argument", name, owner)
    yield from (_Named(value, "attribute", name, owner) for name, value in vars(function).items())


def _names(code: CodeType) -> Iterator[str]:
    """Yield the global names that code reads, without attribute names."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _own(holder: ModuleType | type) -> Iterator[tuple[str, Any]]:
    """Yield the definitions in a module or class, with methods unwrapped."""
    for name, value in list(vars(holder).items()):
        if name in _NOT_THE_AUTHORS:
            continue
        if isinstance(value, staticmethod | classmethod):
            yield name, value.__func__
        else:
            yield name, value.fget if isinstance(value, property) else value


def _is_own(kind: type, local: Container[ModuleType]) -> bool:
    module = sys.modules.get(kind.__module__)
    return module is None or module.__name__ == "__main__" or module in local


def _shown(key: Any) -> str:
    text = repr(key)
    return text if len(text) <= _KEY_CHARACTERS_MAX else text[: _KEY_CHARACTERS_MAX - 1] + "…"
