"""Determines a callable's kind of function by inspection, without calling it.

Design: the callable itself decides, then what it wraps. A decorator that uses `functools.wraps` sets `__wrapped__`, and
usually passes on the function's result, a generator or an awaitable; a plain wrapper of an async function is therefore
considered async. A wrapper that converts the result (a list of a generator's outputs) is called like the wrapped
function, and its return value is one output.
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
"""Maximum wrappers around one function; some objects have every attribute, without end."""


class Kind(Enum):
    """How a function takes messages and returns outputs; the value is its name in errors."""

    PLAIN = "a plain function"
    BATCH = "a batch function"
    GENERATOR = "a generator function"
    ASYNC = "an async def function"
    ASYNC_GENERATOR = "an async generator function"

    @property
    def is_async(self) -> bool:
        """Whether it needs an event loop."""
        return self in (Kind.ASYNC, Kind.ASYNC_GENERATOR)


def kind_of(function: Callable[..., Any] | None) -> Kind:
    """Return the kind of a callable, plain for None; for batch functions see `batch_size`."""
    for layer in layers(function):
        if inspect.iscoroutinefunction(layer):
            return Kind.ASYNC
        if inspect.isasyncgenfunction(layer):
            return Kind.ASYNC_GENERATOR
        if inspect.isgeneratorfunction(layer):
            return Kind.GENERATOR
    return Kind.PLAIN


def batch_size(function: Callable[..., Any], name: str) -> int | None:
    """Return the maximum messages per call of a batch function, None for other functions.

    Raises:
        FunctionLoadError: it is marked as a batch function but is also of another kind.
    """
    for layer in layers(function):
        size = getattr(layer, MARK, None)
        if type(size) is int:
            kind = kind_of(function)
            if kind is not Kind.PLAIN:
                raise FunctionLoadError(
                    f"{name} is marked by batch_function and is {kind.value}; a batch function is a plain def that"
                    " takes a list and returns one, so leave out the decorator or what makes it the other kind"
                )
            return size
    return None


def layers(function: Any) -> Iterator[Any]:
    """Yield a callable, and the callables that it wraps, one after the other."""
    for _ in range(_LAYERS_MAX):
        yield function
        wrapped = getattr(function, "__wrapped__", None)
        if isinstance(function, functools.partial):
            function = function.func
        elif callable(wrapped):
            function = wrapped
        elif not inspect.isroutine(function) and not inspect.isclass(function):
            function = type(function).__call__  # of an object; ends at a C function's own method-wrapper
            if not inspect.isroutine(function):
                return
        else:
            return
