"""Token of a local standalone, which clients use automatically."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

TOKEN_FILE = "token"  # noqa: S105 (a name)
"""Token file in the data directory."""
ADDRESSES_FILE = "token.addresses"
"""File next to it with the addresses that accept the token, one per line. The token is never sent to other servers."""

STATE_KEY_FILE = "state.key"
"""File next to them with the key that generates state store tokens."""


def local_token_of(data_dir: Path, urls: Iterable[str]) -> dict[str, str]:
    """Return settings that use the token in a data directory; empty without a token or for other servers.

    Args:
        data_dir: the server's data directory.
        urls: URLs that the client will use; all of them must be addresses of that server.

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
