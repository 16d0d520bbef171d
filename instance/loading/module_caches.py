"""Clear caches of modules outside `sys.modules`: source lines, import finders, loggers and generic types."""

from __future__ import annotations

import linecache
import logging
import sys
import typing
from collections.abc import Collection

from ..logs.tracebacks import forget_stacks


def forget_modules(prefix: str, roots: Collection[str]) -> None:
    """Remove the modules under a prefix, and cached data about them.

    Args:
        prefix: prefix of the module names, without the dot.
        roots: directories that the modules were imported from.
    """
    for name in _below(sys.modules, prefix):
        del sys.modules[name]
    for cache in (linecache.cache, sys.path_importer_cache):
        for path in [path for path in list(cache) if _is_in(path, roots)]:
            cache.pop(path, None)
    forget_stacks(lambda file: _is_in(file, roots))
    known = logging.getLogger().manager.loggerDict
    for name in _below(known, prefix):
        known.pop(name, None)
    for clear in getattr(typing, "_cleanups", ()):  # `list[Model]` keeps the class, and with it its module
        clear()


def _below(names: Collection[str], prefix: str) -> list[str]:
    inside = prefix + "."
    return [name for name in list(names) if name == prefix or name.startswith(inside)]


def _is_in(path: object, roots: Collection[str]) -> bool:
    return isinstance(path, str) and any(path == root or path.startswith(f"{root}/") for root in roots)
