"""Where the token of a standalone on this machine lies, and when a client shows it by itself."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

TOKEN_FILE = "token"  # noqa: S105 (a name)
"""In the data directory."""


def local_token_of(data_dir: Path, urls: Iterable[str]) -> dict[str, str]:
    """Return the settings that show the token of a data directory, where there is one; nothing for other machines.

    Args:
        data_dir: of the server.
        urls: of the servers that are asked; all on this machine, or nothing is shown.

    Returns:
        fields of `ClientSecurity`.
    """
    file = data_dir / TOKEN_FILE
    if not file.is_file() or not all(_is_here(url) for url in urls):
        return {}
    return {"auth_plugin": "token", "auth_params": file.absolute().as_uri()}


def _is_here(url: str) -> bool:
    """Return whether a URL names this machine by its loopback address, or as ``localhost``; one host only."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
