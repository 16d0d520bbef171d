"""Find the function in its package and make it callable; used on the function's thread, because it runs user code.

This module also locates the modules of a package, and handles imports in a process with a single function.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.machinery
import inspect
import pkgutil
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

from ...api.serde import IdentitySerDe, JsonSerDe, PickleSerDe, SerDe
from ...errors import FunctionLoadError
from ..spec import InstanceSpec
from .kinds import Kind, batch_size, kind_of
from .own_imports import OwnImports

REQUIREMENTS = "requirements.txt"
WHEELS = "deps"
"""Directory next to the requirements with wheels to install from, without an index."""
SHOWN_AFTER_S = 5.0
"""Duration after which the status reports a running import; shorter ones are normal."""
PICKLE = PickleSerDe.__name__
_OUR_SERDES = {kind.__name__: kind for kind in (IdentitySerDe, JsonSerDe, PickleSerDe)}
_OUR_MODULES = ("", "serde", "pulsar", "pulsar.functions.serde", "magnetar", "magnetar.api", "magnetar.api.serde")


class Loading:
    """The current step of loading user code; `step` is called on the function's thread, `trouble` on any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Create a tracker without a current step.

        Args:
            clock: monotonic clock, in seconds.
        """
        self._clock = clock
        self._at_hand: tuple[str, float, int] | None = None

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Record a step while it is running.

        Args:
            what: description, such as ``importing module x``.
        """
        before, self._at_hand = self._at_hand, (what, self._clock(), threading.get_ident())
        try:
            yield
        finally:
            self._at_hand = before

    def trouble(self) -> str:
        """Return which step is slow, for how long, and at which line; empty if none is."""
        at_hand = self._at_hand
        if at_hand is None:
            return ""
        what, since_s, thread = at_hand
        passed_s = self._clock() - since_s
        if passed_s < SHOWN_AFTER_S:
            return ""
        frame = sys._current_frames().get(thread)
        where = f"; now at line {frame.f_lineno} of {frame.f_code.co_filename}" if frame is not None else ""
        return f"{what} for {passed_s:.0f} s{where}"


class Home(Protocol):
    """Where user code is imported and runs: a separate or a shared process. Methods are called on its thread.

    Attributes:
        loading: current step of loading user code.
    """

    loading: Loading

    def enter_thread(self) -> None:
        """Prepare the function's thread at its start."""

    def leave_thread(self) -> None:
        """Clean up at the end of the function's thread."""

    def import_module(self, name: str) -> ModuleType:
        """Import a module of the package by its unprefixed name."""

    def pickle_serde(self) -> SerDe:
        """Return a PickleSerDe that finds the package's classes."""


def requirements_of(package: Path) -> Path | None:
    """Return the requirements.txt of an extracted package, next to or above its modules, or None.

    Built-in connectors and statements have no package, and so no requirements.
    """
    if package == Path():
        return None
    directory = package.parent if package.name == "src" else package
    return directory / REQUIREMENTS if (directory / REQUIREMENTS).is_file() else None


def module_root(package: Path) -> Path:
    """Return the directory that a package's modules are imported from.

    Raises:
        FunctionLoadError: the file or directory does not exist.
    """
    if package.is_dir():
        return package
    if not package.is_file():
        raise FunctionLoadError(f"package {package} does not exist")
    if package.suffix != ".py":
        raise FunctionLoadError(f"package {package.name} is neither a .py file nor a directory of modules")
    return package.parent


class ProcessHome:
    """Home of a function with its own process, where modules are imported under their own names.

    Attributes:
        loading: current step of loading user code.
    """

    def __init__(self, package: Path, libraries: Path | None = None) -> None:
        """Create the home of a package with its installed requirements, without importing a module."""
        self.loading = Loading()
        self._package = package
        self._libraries = libraries
        self._is_ready = False

    def enter_thread(self) -> None:
        """Do nothing: the process belongs to the function."""

    def leave_thread(self) -> None:
        """Do nothing: the process belongs to the function."""

    def pickle_serde(self) -> SerDe:
        """Return an ordinary `PickleSerDe`."""
        return PickleSerDe()

    def import_module(self, name: str) -> ModuleType:
        """Import a module of the package."""
        if not self._is_ready:
            self._is_ready = True
            root = module_root(self._package)
            self._make_room(root)
            sys.path.insert(0, str(root))
            if self._libraries is not None:  # after our own libraries, which are already imported
                sys.path.append(str(self._libraries))
                importlib.invalidate_caches()
        return importlib.import_module(name)

    def _make_room(self, root: Path) -> None:
        """Remove loaded modules of this process that have the same names as modules of the package.

        We keep our references to them; user code gets its own modules. Modules of the standard library remain, because
        many refer to each other.
        """
        names = set()
        for name in self._own_names(root):
            if name not in sys.modules or name not in sys.stdlib_module_names:
                names.add(name)
                continue
            print(  # noqa: T201  goes to the instance's log
                f"warning: module {name!r} of the package is hidden by a standard library module of the same name that"
                " is already loaded; rename it",
                file=sys.stderr,
            )
        if any(name in sys.modules or _is_elsewhere(name) for name in names):
            OwnImports(names, str(root)).install()

    def _own_names(self, root: Path) -> list[str]:
        """Return the module names of the package; files next to a single file belong to other functions."""
        if self._package.is_file():
            return [self._package.stem]
        return [found.name for found in pkgutil.iter_modules([str(root)])]


def _is_elsewhere(name: str) -> bool:
    """Return whether a module of this name exists outside the package."""
    return importlib.machinery.PathFinder.find_spec(name, sys.path) is not None or name in sys.stdlib_module_names


class LoadedFunction:
    """A function's callable and calling convention.

    Attributes:
        call: function of the value, and of the context if `takes_context`.
        takes_context: whether the function takes the context.
        kind: kind of function.
        batch_size: maximum number of messages per call of a batch function.
        loop: event loop on which an async function's object was created; None for other functions.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        takes_context: bool,
        kind: Kind = Kind.PLAIN,
        batch_size: int = 1,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Store all arguments."""
        self.call = call
        self.takes_context = takes_context
        self.kind = kind
        self.batch_size = batch_size
        self.loop = loop

    def only(self, kinds: Collection[Kind], where: str) -> LoadedFunction:
        """Return the function if its kind is one of ``kinds``.

        Raises:
            FunctionLoadError: the function has another kind; the error names ``where``.
        """
        if self.kind in kinds:
            return self
        self.close()
        known = " or ".join(kind.value for kind in kinds)
        raise FunctionLoadError(f"{where} cannot be {self.kind.value}: make it {known}")

    def close(self) -> None:
        """Close the event loop of a function that will not be called (on the function's thread)."""
        if self.loop is not None:
            self.loop.close()


def load_function(spec: InstanceSpec, home: Home) -> LoadedFunction:
    """Load the function named by ``className``.

    ``module.Class`` is instantiated once, without arguments, and its ``process(input, context)`` is called.
    ``module.function`` is called with the value, and with the context if it has a second parameter. ``module`` alone
    means its function ``process``. An object with an async method is created on the method's running event loop, so
    that its constructor can create clients that need one.

    Raises:
        FunctionLoadError: the function does not exist or cannot be called.
        Exception: the package raised it on import, or the class on creation.
    """
    class_name = spec.details.className
    module_name, _, attribute = class_name.rpartition(".")
    if not module_name:
        module_name, attribute = class_name, "process"
    found = find_object(home, module_name, attribute, f"className {class_name!r}")
    if isinstance(found, ModuleType) or not callable(found):
        raise FunctionLoadError(f"className {class_name!r} names a {type(found).__name__}, not a class or function")
    function = found
    needs_loop = kind_of(getattr(found, "process", None) if inspect.isclass(found) else found).is_async
    loop = asyncio.new_event_loop() if needs_loop else None
    try:
        if inspect.isclass(found):
            with home.loading.step(f"creating an instance of class {class_name}"):
                made = found() if loop is None else loop.run_until_complete(_construct(found))
            function = getattr(made, "process", None)
            if not callable(function):
                raise FunctionLoadError(f"class {class_name} has no method process(self, input, context)")
        kind, size = kind_of(function), batch_size(function, class_name)
        if kind.is_async and loop is None:  # the constructor created the method
            loop = asyncio.new_event_loop()
        takes_context = _takes_context(function, class_name)
    except BaseException:
        if loop is not None:
            loop.close()
        raise
    return LoadedFunction(function, takes_context, kind if size is None else Kind.BATCH, size or 1, loop)


async def _construct(kind: Callable[[], Any]) -> Any:
    return kind()


def find_object(home: Home, module_name: str, attribute: str, what: str) -> Any:
    """Return a module attribute from the package; ``what`` names the setting in the error."""
    try:
        with home.loading.step(f"importing module {module_name}"):
            module = home.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise FunctionLoadError(
                f"{what}: the package has no module {module_name!r}: use the file name without .py as the module name"
            ) from None
        if error.name is not None and "." not in error.name:
            error.msg = f"{error}: add it to the package or its requirements.txt, or install it where the function runs"
        raise
    if hasattr(module, attribute):
        return getattr(module, attribute)
    names = [name for name, value in vars(module).items() if _is_candidate(name, value, module)]
    there = f"it defines {', '.join(sorted(names)[:10])}" if names else "it defines no function or class"
    raise FunctionLoadError(f"{what}: module {module_name!r} has no {attribute!r}; {there}")


def _is_candidate(name: str, value: object, module: ModuleType) -> bool:
    is_own = getattr(value, "__module__", None) == module.__name__
    return is_own and not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value))


def _takes_context(function: Callable[..., Any], class_name: str) -> bool:
    """Return whether a function takes a context, and reject functions with an invalid number of arguments."""
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
            f"{class_name} takes ({', '.join(required + keywords)}): it must accept the message, or the message and a"
            " context"
        )
    if len(required) == 2 or takes_any:
        return True
    return len(positional) > 1 and (positional[1].name == "context" or _is_context(positional[1].annotation))


def _is_context(annotation: object) -> bool:
    """Return whether a parameter is annotated as a context, by class or by name."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return "Context" in re.split(r"\W+", text)


def load_serde(home: Home, class_name: str) -> SerDe:
    """Return a SerDe by class name; an empty name means `IdentitySerDe`.

    Raises:
        FunctionLoadError: the class does not exist or lacks a method.
    """
    if not class_name:
        return IdentitySerDe()
    module_name, _, attribute = class_name.rpartition(".")
    if module_name in _OUR_MODULES and attribute in _OUR_SERDES:
        return home.pickle_serde() if attribute == PICKLE else _OUR_SERDES[attribute]()
    if not module_name:
        known = ", ".join(_OUR_SERDES)
        raise FunctionLoadError(
            f"unknown SerDe {class_name!r}: expected one of {known}, or module.Class for your own class"
        )
    found = find_object(home, module_name, attribute, f"SerDe {class_name!r}")
    if not inspect.isclass(found):
        raise FunctionLoadError(f"SerDe {class_name!r} names a {type(found).__name__}, not a class")
    with home.loading.step(f"creating an instance of SerDe {class_name}"):
        serde: Any = found()
    for method in ("serialize", "deserialize"):
        if not callable(getattr(serde, method, None)):
            raise FunctionLoadError(f"SerDe {class_name!r} has no method {method}")
    return cast(SerDe, serde)  # subclassing SerDe is optional
