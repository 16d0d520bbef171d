"""Keep imports of modules loaded earlier independent of a function's package.

Design: a package may contain a module `grpc`, which its code must get. But the real grpc, which answers requests about
the instance and transports its state, imports some of its parts on demand, and would find the package's. So the
process's ``__import__`` checks the importer: modules loaded before the package import as if there were no package. It
is replaced only if a name is used twice, because it slows down every import statement.

Imports by C code are not covered.
"""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class OwnImports:
    """Replacement of ``__import__`` for a process in which two modules have the same name."""

    def __init__(self, names: Collection[str], root: str) -> None:
        """Record the loaded modules, and remove those that the package also has; call `install` next.

        Args:
            names: top-level modules of the package that may also exist outside it.
            root: directory of the package, added to ``sys.path`` later.
        """
        self._names = frozenset(names)
        self._root = root
        self._loaded = list(sys.modules.values())  # keeps references, so that ids are not reused
        self._importers = {id(vars(module)) for module in self._loaded if isinstance(module, ModuleType)}
        self._ours: dict[str, ModuleType] = self._take()
        self._lock = threading.RLock()
        self._import = builtins.__import__

    def _take(self) -> dict[str, ModuleType]:
        taken = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in self._names}
        for name in taken:
            del sys.modules[name]
        return taken

    def install(self) -> None:
        """Start distinguishing importers."""
        builtins.__import__ = self

    def __call__(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,  # noqa: A002  the names are those of __import__
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Import a module, depending on the importer, as ``__import__``."""
        if globals is None or id(globals) not in self._importers:
            return self._import(name, globals, locals, fromlist, level)
        package = str(globals.get("__package__") or "") if level else name
        if package.partition(".")[0] not in self._names:
            return self._import(name, globals, locals, fromlist, level)
        if not level:
            found = self._ours.get(name if fromlist else name.partition(".")[0])
            if found is not None and all(hasattr(found, one) for one in fromlist or ()) and name in self._ours:
                return found
        with self._lock, self._as_before():
            return self._import(name, globals, locals, fromlist, level)

    @contextmanager
    def _as_before(self) -> Iterator[None]:
        """Restore this process's own modules during one import."""
        path = list(sys.path)
        theirs = self._take()
        sys.modules.update(self._ours)
        sys.path[:] = [one for one in path if one != self._root]
        try:
            yield
        finally:
            sys.path[:] = path
            loaded = self._take()
            for name in loaded.keys() - self._ours.keys():
                self._importers.add(id(vars(loaded[name])))
            self._ours = loaded
            sys.modules.update(theirs)
