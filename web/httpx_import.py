"""httpx without its command line."""

from __future__ import annotations

import sys

from .. import late_module

_COMMAND_LINE = "httpx._main"


def import_httpx() -> None:
    """Import httpx without its own command line, for which it imports rich and pygments: 3 MB in every server.

    httpx does without that module where they are not installed; this tells it so, for the length of the import.
    """
    if "httpx" in sys.modules:
        return
    late_module("idna")  # tables of letters, for hosts that are not written in ASCII
    # None is what the import system takes for "there is none".
    sys.modules[_COMMAND_LINE] = None  # type: ignore[assignment]
    try:
        import httpx  # noqa: F401
    finally:
        sys.modules.pop(_COMMAND_LINE, None)
