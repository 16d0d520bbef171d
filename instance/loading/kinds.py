"""Determine a callable's kind of function by inspection, without calling it.

Design: the callable itself decides, then the callables that it wraps. A decorator that uses `functools.wraps` sets
`__wrapped__`, and usually passes on the function's result, a generator or an awaitable; so a plain wrapper of an async
function is considered async. A wrapper that converts the result (a list of a generator's outputs) is called like the
wrapped function, and its return value is one output.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from ...api.batches import MARK
from ...errors import FunctionLoadError

_LAYERS_MAX = 100
"""Maximum number of wrappers around a function; some objects have every attribute, endlessly."""


class Kind(Enum):
    """How a function takes messages and returns outputs; values are names for errors."""

    PLAIN = "a plain function"
    BATCH = "a batch function"
    GENERATOR = "a generator function"
    ASYNC = "an async def function"
    ASYNC_GENERATOR = "an async generator function"

    @property
    def is_async(self) -> bool:
        """Whether the function needs an event loop."""
        return self in (Kind.ASYNC, Kind.ASYNC_GENERATOR)


def kind_of(function: Callable[..., Any] | None) -> Kind:
    """Return the kind of a callable, or PLAIN for None; `batch_size` detects batch functions."""
    for layer in layers(function):
        if inspect.iscoroutinefunction(layer):
            return Kind.ASYNC
        if inspect.isasyncgenfunction(layer):
            return Kind.ASYNC_GENERATOR
        if inspect.isgeneratorfunction(layer):
            return Kind.GENERATOR
    return Kind.PLAIN


def batch_size(function: Callable[..., Any], name: str) -> int | None:
    """Return the maximum number of messages per call of a batch function, or None for other functions.

    Raises:
        FunctionLoadError: a batch function is also of another kind.
    """
    for layer in layers(function):
        size = getattr(layer, MARK, None)
        if type(size) is int:
            kind = kind_of(function)
            if kind is not Kind.PLAIN:
                raise FunctionLoadError(
                    f"{name} is decorated with batch_function but is {kind.value}: remove the decorator, or make it a"
                    " plain def that takes and returns a list"
                )
            return size
    return None


def layers(function: Any) -> Iterator[Any]:
    """Yield a callable, followed by the callables that it wraps."""
    for _ in range(_LAYERS_MAX):
        yield function
        wrapped = getattr(function, "__wrapped__", None)
        if isinstance(function, functools.partial):
            function = function.func
        elif callable(wrapped):
            function = wrapped
        elif not inspect.isroutine(function) and not inspect.isclass(function):
            function = type(function).__call__  # an object's method; ends at a C function's method wrapper
            if not inspect.isroutine(function):
                return
        else:
            return
