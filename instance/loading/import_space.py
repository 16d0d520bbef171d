"""Give each function in the worker's process a separate module namespace.

Design: `sys.modules` is shared by the process, and much of Python relies on it (dataclasses, type hints and pickle look
up a class's module there). So a function's modules are registered there like all others, under a prefix: the function's
``util`` is ``fn_public_default_f_0_1a2b3c.util``. User code does not see the prefix: its modules have their own
``__builtins__``, whose ``__import__`` adds the prefix where the package has a module of that name, and leaves all other
names to the import system. The import system does the loading, with its locks, parents and caches; a finder for the
prefix only ensures that each module gets those builtins. Late imports, and imports by functions called from other
threads, work in the same way, because builtins belong to the module.

The function's installed requirements are also modules of its space, searched after those of the process; so two
functions may use different versions. They must be pure Python: an extension module is shared by the process.

Limitation: a library that imports user modules by name with its own ``importlib`` does not find them. Such functions
need a separate process.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import importlib.machinery
import importlib.util
import io
import logging
import pickle
import re
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, TextIO

from ...api.serde import SerDe
from ...errors import FunctionLoadError
from .loader import module_root
from .module_caches import forget_modules
from .pulsar_facade import NAME as PULSAR
from .pulsar_facade import PulsarFacade

if TYPE_CHECKING:
    from importlib.metadata import Distribution, DistributionFinder

_PREFIX = re.compile(r"fn_\w+_[0-9a-f]{6}\.")


def prefix_of(key: str) -> str:
    """Return the module prefix of an instance, which never changes, so that pickles remain readable."""
    readable = re.sub(r"\W", "_", key)
    return f"fn_{readable}_{hashlib.sha256(key.encode()).hexdigest()[:6]}"


class _Finder:
    """Finds the modules of all spaces; one per process, because every import calls every finder."""

    def __init__(self) -> None:
        self._spaces: dict[str, ImportSpace] = {}
        self._changes = threading.Lock()

    def add(self, space: ImportSpace) -> None:
        """Start finding modules of a space."""
        with self._changes:
            self._spaces[space.prefix] = space
            if self not in sys.meta_path:
                sys.meta_path.insert(0, self)

    def has(self, space: ImportSpace) -> bool:
        """Return whether modules of a space are found; False if a later space has taken over the prefix."""
        return self._spaces.get(space.prefix) is space

    def remove(self, prefix: str) -> bool:
        """Stop finding modules with a prefix; return whether it belonged to a space."""
        with self._changes:
            is_known = self._spaces.pop(prefix, None) is not None
            if not self._spaces and self in sys.meta_path:
                sys.meta_path.remove(self)
            return is_known

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module under the prefix of a space; called by importlib."""
        prefix, dot, _ = fullname.partition(".")
        space = self._spaces.get(prefix) if dot else None
        return None if space is None else space.find_spec(fullname, path)

    def find_distributions(self, context: DistributionFinder.Context) -> Iterable[Distribution]:
        """Find distributions installed for the space of the calling code, by plain or prefixed names."""
        space = self._asking()
        if space is None or space.libraries is None or "path" in vars(context):  # the caller passed a path
            return ()
        from importlib.metadata import DistributionFinder, MetadataPathFinder  # the caller has imported it already

        name = None if context.name is None else context.name.removeprefix(space.prefix + ".")
        where = DistributionFinder.Context(name=name, path=[str(space.libraries)])
        return MetadataPathFinder.find_distributions(where)

    def _asking(self) -> ImportSpace | None:
        """Return the space of the innermost calling code that belongs to one, or None."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            module = frame.f_globals.get("__name__")
            space = self._spaces.get(module.partition(".")[0]) if isinstance(module, str) else None
            if space is not None:
                return space
            frame = frame.f_back
        return None


_FINDER = _Finder()


class ImportSpace:
    """The modules of one instance; call `install` before use and `remove` at the end.

    Attributes:
        prefix: prefix of the registered module names.
        libraries: directory of the function's installed requirements, or None.
    """

    def __init__(self, key: str, package: Path, output: TextIO | None = None, libraries: Path | None = None) -> None:
        """Create a space without importing a module.

        Args:
            key: key of the instance.
            package: a .py file or the directory of modules.
            output: where ``print`` in its modules writes, or None for standard output.
            libraries: directory of the function's installed requirements, or None.
        """
        self.prefix = prefix_of(key)
        self._package = package
        self.libraries = libraries
        self._root = ""
        self._facade = PulsarFacade()
        self._importlib = _Importlib(self)
        self._known: dict[str, bool] = {}
        self._builtins: dict[str, Any] = dict(vars(builtins))
        self._builtins["__import__"] = self._import
        if output is not None:
            self._builtins["print"] = _printer(output)

    def install(self) -> None:
        """Make the modules importable.

        Raises:
            FunctionLoadError: the package does not exist, or its requirements are not pure Python.
        """
        self._root = str(module_root(self._package))
        if self.libraries is not None:
            _check_pure(self.libraries)
        self.remove()
        parent = ModuleType(self.prefix, "Modules of one function.")
        parent.__path__ = [self._root] if self.libraries is None else [self._root, str(self.libraries)]
        sys.modules[self.prefix] = parent
        _FINDER.add(self)

    def remove(self) -> None:
        """Remove the modules, so that a new version of the function starts without them."""
        if _FINDER.remove(self.prefix):  # otherwise no module was imported
            roots = [self._root] if self.libraries is None else [self._root, str(self.libraries)]
            forget_modules(self.prefix, roots)

    def close(self, logger: str) -> None:
        """Remove the modules and their logger, unless a later run of the function has replaced them."""
        if _FINDER.has(self):
            self.remove()
            logging.getLogger().manager.loggerDict.pop(logger, None)

    def import_module(self, name: str) -> ModuleType:
        """Import a module of the package by its unprefixed name."""
        try:
            return importlib.import_module(f"{self.prefix}.{name}")
        except ModuleNotFoundError as error:
            from importlib.metadata import PackageNotFoundError

            name = "" if isinstance(error, PackageNotFoundError) else error.name or ""
            if name.startswith(self.prefix + "."):
                own = name.removeprefix(self.prefix + ".")
                raise ModuleNotFoundError(f"No module named {own!r}", name=own) from None
            raise

    def has(self, name: str) -> bool:
        """Return whether the package or its requirements have a top-level module with this name."""
        known = self._known.get(name)
        if known is None:
            find = importlib.machinery.PathFinder.find_spec
            spec = find(name, [self._root])
            # As usual, a directory without __init__.py is a module only if no other module has the name.
            known = spec is not None and (spec.origin is not None or not _is_elsewhere(name))
            if not known and self.libraries is not None and find(name, [str(self.libraries)]) is not None:
                known = not _is_elsewhere(name)
            self._known[name] = known
        return known

    def find_spec(self, fullname: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module under the prefix, with the space's builtins, or None."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path, self._builtins)
        return spec

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002  the names are those of __import__
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Implement ``__import__`` for user code."""
        top = name.partition(".")[0]
        if level == 0:
            if top == PULSAR:
                module = self.resolve(name)
                return module if fromlist else self._facade
            if top == "importlib":
                importlib.import_module(name)
                return sys.modules[name] if fromlist and name != top else self._importlib
            if self.has(top):
                if fromlist:
                    return builtins.__import__(f"{self.prefix}.{name}", globals, locals, fromlist)
                self.import_module(name)
                return sys.modules[f"{self.prefix}.{top}"]
        return builtins.__import__(name, globals, locals, fromlist or (), level)

    def resolve(self, name: str) -> ModuleType:
        """Implement ``importlib.import_module`` for user code."""
        top = name.partition(".")[0]
        if top == PULSAR:
            known = self._facade.modules.get(name)
            if known is not None:
                return known
            try:
                self._facade.official(name)
            except AttributeError as error:
                raise ModuleNotFoundError(str(error), name=name) from None
            return importlib.import_module(name)
        return self.import_module(name) if self.has(top) else importlib.import_module(name)


def _is_elsewhere(name: str) -> bool:
    return name in sys.modules or importlib.util.find_spec(name) is not None


def _check_pure(libraries: Path) -> None:
    """Reject requirements that include an extension module."""
    found = next((file for file in libraries.rglob("*") if file.name.endswith(tuple(EXTENSION_SUFFIXES))), None)
    if found is not None:
        raise FunctionLoadError(
            f"the package's requirements include the extension module {found.relative_to(libraries)}, but functions in"
            " threads support only pure Python modules: use --runtime process, or install it where the worker runs"
        )


class _Importlib(ModuleType):
    """The ``importlib`` of user code."""

    def __init__(self, space: ImportSpace) -> None:
        super().__init__("importlib", importlib.__doc__)
        self._space = space

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        """Import a module of the function, or any other."""
        if name.startswith("."):
            return importlib.import_module(name, package)
        return self._space.resolve(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module with the builtins of its space."""

    def __init__(self, fullname: str, path: str, space_builtins: dict[str, Any]) -> None:
        super().__init__(fullname, path)
        self._builtins = space_builtins

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = self._builtins
        super().exec_module(module)


def _printer(output: TextIO) -> Any:
    def print_(
        *values: object, sep: str | None = " ", end: str | None = "\n", file: Any = None, flush: bool = False
    ) -> None:
        print(*values, sep=sep, end=end, file=output if file is None else file, flush=flush)

    print_.__name__ = print_.__qualname__ = "print"
    return print_


class SpacePickleSerDe(SerDe):
    """Pickles with the unprefixed module names of classes, for compatibility with other processes."""

    def __init__(self, space: ImportSpace) -> None:
        """Create a SerDe that finds classes in ``space``."""
        self._space = space
        self._spelled = f"c{space.prefix}.".encode()

    def serialize(self, input: Any) -> bytes:  # noqa: A002  the name is Pulsar's
        """Pickle a value."""
        # Protocol 3 has a single form for class names: opcode c, module, line end.
        return pickle.dumps(input, 3).replace(self._spelled, b"c")

    def deserialize(self, input_bytes: bytes) -> Any:
        """Unpickle a value."""
        return _Unpickler(input_bytes, self._space).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, space: ImportSpace) -> None:
        super().__init__(io.BytesIO(data))
        self._space = space

    def find_class(self, module: str, name: str) -> Any:
        own = _PREFIX.sub("", module, count=1) if _PREFIX.match(module) else module
        if self._space.has(own.partition(".")[0]):
            module = f"{self._space.prefix}.{own}"
        return super().find_class(module, name)
