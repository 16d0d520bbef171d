"""Where the token of a standalone on this machine lies, and when a client shows it by itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

TOKEN_FILE = "token"  # noqa: S105 (a name)
"""In the data directory."""
ADDRESSES_FILE = "token.addresses"
"""Beside it: the addresses that take it, one a line. Whoever listens elsewhere on this machine is not shown it."""

STATE_KEY_FILE = "state.key"
"""Beside them: the key with which tokens of the state store are made."""


def local_token_of(data_dir: Path, urls: Iterable[str]) -> dict[str, str]:
    """Return the settings that show the token of a data directory, where there is one; nothing for other machines.

    Args:
        data_dir: of the server.
        urls: of the servers that are asked; all of them that server's, or nothing is shown.

    Returns:
        fields of `ClientSecurity`.
    """
    file = data_dir / TOKEN_FILE
    try:
        taken = set((data_dir / ADDRESSES_FILE).read_text(encoding="utf-8").split())
    except (OSError, ValueError):
        return {}
    if not file.is_file() or not taken.issuperset(url.rstrip("/") for url in urls):
        return {}
    return {"auth_plugin": "token", "auth_params": file.absolute().as_uri()}
