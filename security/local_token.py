"""The token of a standalone on this machine, which clients use automatically."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

TOKEN_FILE = "token"  # noqa: S105 (a name)
"""File in the data directory."""
ADDRESSES_FILE = "token.addresses"
"""File beside it: the addresses that accept the token, one per line. Other servers on this machine never receive it."""

STATE_KEY_FILE = "state.key"
"""File beside them: the key that generates state store tokens."""


def local_token_of(data_dir: Path, urls: Iterable[str]) -> dict[str, str]:
    """Return the settings for using the token in a data directory; empty without a token or for other servers.

    Args:
        data_dir: the server's data directory.
        urls: the URLs that the client will use; all must be that server's addresses.

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
