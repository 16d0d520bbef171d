"""Resolution of string annotations before a function is pickled.

`from __future__ import annotations` turns all annotations into strings. A pickled function contains only the globals
that its code uses, and its classes refer to a module that workers do not have. So the resolved annotations are sent
separately, for the function's parameters and return value, and for all fields of the dataclasses among them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from types import FunctionType, SimpleNamespace
from typing import Any, get_args

_LAYERS_MAX = 100
_VALUES = 2
"""Number of leading parameters that may be the value: the first, or the one after ``self``."""

Resolved = list[tuple[Any, dict[str, Any]]]
"""Functions and classes, each with the annotations that replace its own."""


def resolved_annotations(function: Any, is_by_value: Callable[[Any], bool]) -> Resolved:
    """Return resolved annotations of a function and its dataclasses, where only their module can resolve them.

    Args:
        function: a function, a method, a class with ``process``, or a callable object.
        is_by_value: returns whether a function or class is pickled by value rather than by name.
    """
    found: Resolved = []
    seen: set[Any] = set()
    for layer in _layers(function):
        if not isinstance(layer, FunctionType) or not is_by_value(layer):
            continue
        names = [*layer.__code__.co_varnames[: min(_VALUES, layer.__code__.co_argcount)], "return"]
        wanted = {name: layer.__annotations__[name] for name in names if name in layer.__annotations__}
        meant = _meant(wanted, layer.__globals__, {})
        if meant != wanted:
            found.append((layer, {**layer.__annotations__, **meant}))
        for annotation in meant.values():
            _follow(annotation, is_by_value, seen, found)
    return found


def _layers(function: Any) -> Iterator[Any]:
    """Yield a callable, then each callable that it wraps, from the outside in."""
    if inspect.isclass(function):
        function = inspect.getattr_static(function, "process", None)
        function = getattr(function, "__func__", function)  # a static method
    for _ in range(_LAYERS_MAX):
        yield function
        wrapped = getattr(function, "__wrapped__", None)
        if isinstance(function, functools.partial):
            function = function.func
        elif callable(wrapped):
            function = wrapped
        elif inspect.ismethod(function):
            function = function.__func__
        elif callable(function) and not inspect.isroutine(function):
            function = type(function).__call__
        else:
            return


def _meant(annotations: dict[str, Any], names: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return the resolved annotations; unresolvable ones are returned unchanged."""
    meant = {}
    for name, annotation in annotations.items():
        try:
            holder = SimpleNamespace(__annotations__={name: annotation})
            meant[name] = typing.get_type_hints(holder, names, more, include_extras=True)[name]
        except Exception:  # noqa: BLE001  evaluating user code may raise anything; the worker reports the failure
            meant[name] = annotation
    return meant


def _follow(annotation: Any, is_by_value: Callable[[Any], bool], seen: set[Any], found: Resolved) -> None:
    for argument in get_args(annotation):
        _follow(argument, is_by_value, seen, found)
    if not isinstance(annotation, type) or get_args(annotation) or annotation in seen:
        return
    seen.add(annotation)
    for kind in annotation.__mro__:
        if not dataclasses.is_dataclass(kind) or not is_by_value(kind):
            continue
        own = vars(kind).get("__annotations__", {})
        meant = _meant(own, vars(sys.modules.get(kind.__module__, sys)), dict(vars(kind)))
        if meant != own:
            found.append((kind, meant))
        for field in meant.values():
            _follow(field, is_by_value, seen, found)
