"""Finds the function in its package and makes it callable; runs on the function's thread, for it runs user code."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol, cast

from ...api.serde import IdentitySerDe, PickleSerDe, SerDe
from ...errors import FunctionLoadError
from ..spec import InstanceSpec
from .steps import Loading

PICKLE = PickleSerDe.__name__
_OUR_SERDES = (IdentitySerDe.__name__, PICKLE)
_OUR_MODULES = ("", "serde", "pulsar", "pulsar.functions.serde", "magnetar", "magnetar.api", "magnetar.api.serde")


class Home(Protocol):
    """Where user code is imported and runs: its own process, or a part of the worker's. All methods run on its thread.

    Attributes:
        loading: what of it is being loaded.
    """

    loading: Loading

    def enter_thread(self) -> None:
        """The function's thread begins."""

    def leave_thread(self) -> None:
        """The function's thread ends."""

    def import_module(self, name: str) -> ModuleType:
        """Return a module of the package by its own name."""

    def pickle_serde(self) -> SerDe:
        """Return a PickleSerDe that finds the package's classes."""


class LoadedFunction:
    """A callable and whether it takes a context.

    Attributes:
        call: takes the value, and the context if `takes_context`.
        takes_context: whether it does.
    """

    def __init__(self, call: Callable[..., Any], takes_context: bool) -> None:
        """Hold both."""
        self.call = call
        self.takes_context = takes_context


def load_function(spec: InstanceSpec, home: Home) -> LoadedFunction:
    """Return the function that ``className`` names.

    ``module.Class`` is made once, without arguments, and its ``process(input, context)`` called; ``module.function`` is
    called with the value, and the context if it has a second argument; ``module`` alone means its function ``process``.

    Raises:
        FunctionLoadError: there is no such thing, or it is of a kind that cannot be called.
        Exception: whatever the package raises while it is imported, or the class while it is made.
    """
    class_name = spec.details.className
    module_name, _, attribute = class_name.rpartition(".")
    if not module_name:
        module_name, attribute = class_name, "process"
    found = _find(home, module_name, attribute, f"className {class_name!r}")
    if inspect.isclass(found):
        with home.loading.step(f"making an object of class {class_name}"):
            found = getattr(found(), "process", None)
        if not callable(found):
            raise FunctionLoadError(f"class {class_name} has no method process(self, input, context)")
    elif isinstance(found, ModuleType) or not callable(found):
        raise FunctionLoadError(f"className {class_name!r} names a {type(found).__name__}, not a class or function")
    return LoadedFunction(found, _takes_context(found, class_name))


def _find(home: Home, module_name: str, attribute: str, what: str) -> Any:
    try:
        with home.loading.step(f"importing module {module_name}"):
            module = home.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise FunctionLoadError(
                f"{what} names module {module_name!r}, which the package does not have;"
                " the module name is the file name without .py"
            ) from None
        raise
    if hasattr(module, attribute):
        return getattr(module, attribute)
    names = [name for name, value in vars(module).items() if _is_candidate(name, value, module)]
    there = f"it has {', '.join(sorted(names)[:10])}" if names else "it defines no function or class"
    raise FunctionLoadError(f"{what}: module {module_name!r} has no {attribute!r}; {there}")


def _is_candidate(name: str, value: object, module: ModuleType) -> bool:
    is_own = getattr(value, "__module__", None) == module.__name__
    return is_own and not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value))


def _takes_context(function: Callable[..., Any], class_name: str) -> bool:
    """Return whether a second argument is expected, and refuse what cannot be called yet."""
    for is_kind, kind in (
        (inspect.iscoroutinefunction, "an async def"),
        (inspect.isasyncgenfunction, "an async generator"),
        (inspect.isgeneratorfunction, "a generator"),
    ):
        if is_kind(function):
            raise FunctionLoadError(f"{class_name} is {kind} function, which is not supported yet; use a plain def")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False  # a built-in without a signature takes one value
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    required = [one.name for one in positional if one.default is one.empty]
    keywords = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    takes_any = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    if len(required) > 2 or keywords or not (positional or takes_any):
        raise FunctionLoadError(
            f"{class_name} takes ({', '.join(required + keywords)}); it must take the message, or the message and a"
            " context"
        )
    if len(required) == 2 or takes_any:
        return True
    return len(positional) > 1 and positional[1].name == "context"


def load_serde(home: Home, class_name: str) -> SerDe:
    """Return a SerDe by class name; an empty one means `IdentitySerDe`.

    Raises:
        FunctionLoadError: there is no such class, or it lacks a method.
    """
    if not class_name:
        return IdentitySerDe()
    module_name, _, attribute = class_name.rpartition(".")
    if module_name in _OUR_MODULES and attribute in _OUR_SERDES:
        return home.pickle_serde() if attribute == PICKLE else IdentitySerDe()
    if not module_name:
        known = ", ".join(_OUR_SERDES)
        raise FunctionLoadError(f"SerDe {class_name!r} is not one of {known}; a class of your own is module.Class")
    found = _find(home, module_name, attribute, f"SerDe {class_name!r}")
    if not inspect.isclass(found):
        raise FunctionLoadError(f"SerDe {class_name!r} names a {type(found).__name__}, not a class")
    with home.loading.step(f"making an object of SerDe {class_name}"):
        serde: Any = found()
    for method in ("serialize", "deserialize"):
        if not callable(getattr(serde, method, None)):
            raise FunctionLoadError(f"SerDe {class_name!r} has no method {method}")
    return cast(SerDe, serde)  # has the methods; subclassing SerDe is optional
