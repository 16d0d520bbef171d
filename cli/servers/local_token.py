"""``--local-token``: standalone accepts only clients that can read a token in its data directory.

Design: each start generates a key in memory, and writes one token signed with it, readable by the owner of the data
directory. Tokens of earlier starts are invalid. So if a client sends its token to another program that listens on the
port while the server is down, that token is useless.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from ...security.local_token import ADDRESSES_FILE, TOKEN_FILE
from ..failure import Failure
from .server_file import Settings

ROLE = "admin"


def close_with_token(in_file: Settings) -> str:
    """Make standalone's settings require a token, and return the token.

    Raises:
        Failure: the settings file configures authentication differently.
    """
    if in_file["security"] or in_file["authorization"] or in_file["client"]:
        raise Failure("--local-token cannot be combined with authentication settings in the --config file")
    import jwt

    key = secrets.token_bytes(32)
    encoded = f"data:;base64,{base64.b64encode(key).decode()}"
    in_file["security"] = {"enabled": True, "providers": ("token",), "token_secret_key": encoded}
    in_file["authorization"] = {"is_enabled": True, "super_user_roles": (ROLE,)}
    return jwt.encode({"sub": ROLE}, key, "HS256")


def write_token(data_dir: Path, token: str) -> None:
    """Write the token, readable by the owner of the data directory.

    Raises:
        Failure: the file cannot be written.
    """
    _write(data_dir / ADDRESSES_FILE, "")  # remove the addresses of an earlier start
    _write(data_dir / TOKEN_FILE, token)


def write_addresses(data_dir: Path, addresses: Iterable[str]) -> None:
    """Write the addresses to which clients send the token; raises the same as `write_token`."""
    _write(data_dir / ADDRESSES_FILE, "".join(f"{address}\n" for address in addresses))


def _write(file: Path, text: str) -> None:
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as out:
            out.write(text)
        temporary.replace(file)
    except OSError as error:
        raise Failure(f"--local-token: {file} cannot be written: {error.strerror}") from error
