"""Annotations that are texts, made what they mean, before the function leaves the modules whose names they are of.

`from __future__ import annotations` makes all of them texts. A pickled function brings those globals only that its code
uses, and its classes think themselves in a module that no worker has. So what its annotations mean is sent beside it:
of the function, what it takes and returns; of dataclasses in these, all fields.
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
"""Parameters that may be the value: the first, or the one behind ``self``."""

Resolved = list[tuple[Any, dict[str, Any]]]
"""Functions and classes, each with annotations in the place of its own."""


def resolved_annotations(function: Any, is_by_value: Callable[[Any], bool]) -> Resolved:
    """Return the annotations of a function, and of dataclasses in them, that mean something in their module only.

    Args:
        function: a function, a method, a class with ``process``, or an object that can be called.
        is_by_value: whether a function or class is sent itself, not by its name.
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
    """Yield a callable, and one after the other what it calls in the end."""
    if inspect.isclass(function):
        function = inspect.getattr_static(function, "process", None)
        function = getattr(function, "__func__", function)  # of a static method
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
    """Return what annotations mean, those that mean nothing as they are."""
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
