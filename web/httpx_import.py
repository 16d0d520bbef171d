"""Import of httpx without its command line."""

from __future__ import annotations

import sys

from .. import late_module

_COMMAND_LINE = "httpx._main"


def import_httpx() -> None:
    """Import httpx without its command line, which imports rich and pygments and so takes 3 MB in every server.

    httpx skips that module if rich and pygments are not installed; this simulates that during the import.
    """
    if "httpx" in sys.modules:
        return
    late_module("idna")  # Unicode tables, for non-ASCII host names
    # None makes the import system treat the module as missing.
    sys.modules[_COMMAND_LINE] = None  # type: ignore[assignment]
    try:
        import httpx  # noqa: F401
    finally:
        sys.modules.pop(_COMMAND_LINE, None)
