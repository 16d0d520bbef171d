"""The package's compiled modules, and whether this process uses them or why not.

mypyc compiles them when a wheel is built and a C compiler is available (setup.py); the wheel also contains their
sources. ``MAGNETAR_PURE=1`` runs the sources.
"""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

MODULES = ("client/consumers/received.py", "wire/message_rows.py", "wire/runs.py")
"""Modules that process each message byte by byte."""
REASON_FILE = "pure_reason.txt"
"""Name of the file in an installed package that contains the reason for missing compiled modules."""
_HOME = Path(__file__).parent
_SOURCES = {"magnetar." + module.removesuffix(".py").replace("/", "."): _HOME / module for module in MODULES}


def is_pure_wanted() -> bool:
    """Return whether ``MAGNETAR_PURE`` disables compiled modules."""
    return os.environ.get("MAGNETAR_PURE", "") not in ("", "0")


def is_compiled() -> bool:
    """Return whether this process uses compiled modules."""
    return not is_pure_wanted() and all(
        any(source.with_suffix(suffix).exists() for suffix in EXTENSION_SUFFIXES) for source in _SOURCES.values()
    )


def why_pure(package: Path = _HOME) -> str:
    """Return the reason why this process does not use compiled modules.

    Args:
        package: directory of the installed package.
    """
    if is_pure_wanted():
        return "MAGNETAR_PURE is set"
    try:
        return (package / REASON_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return "source trees are never compiled"


def variant() -> str:
    """Return ``compiled``, or ``pure Python`` with the reason."""
    return "compiled" if is_compiled() else f"pure Python: {why_pure()}"


class SourceFinder:
    """Finds the sources of compiled modules, for ``sys.meta_path``."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the source spec of a compiled module (called by importlib)."""
        return spec_from_file_location(name, _SOURCES[name]) if name in _SOURCES else None
