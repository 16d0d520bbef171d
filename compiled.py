"""Which modules of the package may run as machine code, and whether they do.

They are compiled by mypyc when a wheel is built where a C compiler is at hand (see setup.py); their sources are in the
wheel too. ``MAGNETAR_PURE=1`` takes the sources.
"""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

MODULES = ("client/consumers/received.py", "wire/message_rows.py", "wire/runs.py")
"""Those that work on each message, byte by byte."""
_HOME = Path(__file__).parent
_SOURCES = {"magnetar." + module.removesuffix(".py").replace("/", "."): _HOME / module for module in MODULES}


def is_pure_wanted() -> bool:
    """Return whether ``MAGNETAR_PURE`` says to go without compiled modules."""
    return os.environ.get("MAGNETAR_PURE", "") not in ("", "0")


def is_compiled() -> bool:
    """Return whether this process runs compiled modules."""
    return not is_pure_wanted() and all(
        any(source.with_suffix(suffix).exists() for suffix in EXTENSION_SUFFIXES) for source in _SOURCES.values()
    )


class SourceFinder:
    """Finds the sources of modules that are compiled, for ``sys.meta_path``."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """See importlib."""
        return spec_from_file_location(name, _SOURCES[name]) if name in _SOURCES else None
