"""``--local-token``: standalone takes whoever can read a token in its data directory, and nobody else.

Design: each start draws a key, keeps it in memory, and writes one token that it has signed, for the owner of the data
directory to read. A token of an earlier life opens nothing, so one that was shown to whatever listened on the port
while the server was down is of no use.
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
    """Put into the settings of standalone that a token is asked for, and return that token.

    Raises:
        Failure: the file of settings says something else of who may ask.
    """
    if in_file["security"] or in_file["authorization"] or in_file["client"]:
        raise Failure("--local-token sets up authentication, and so does the file of --config; give one of them")
    import jwt

    key = secrets.token_bytes(32)
    encoded = f"data:;base64,{base64.b64encode(key).decode()}"
    in_file["security"] = {"enabled": True, "providers": ("token",), "token_secret_key": encoded}
    in_file["authorization"] = {"is_enabled": True, "super_user_roles": (ROLE,)}
    return jwt.encode({"sub": ROLE}, key, "HS256")


def write_token(data_dir: Path, token: str) -> None:
    """Write the token for the owner of the data directory to read.

    Raises:
        Failure: it cannot be written.
    """
    _write(data_dir / ADDRESSES_FILE, "")  # of an earlier life
    _write(data_dir / TOKEN_FILE, token)


def write_addresses(data_dir: Path, addresses: Iterable[str]) -> None:
    """Write to which addresses the token is shown; raises as `write_token`."""
    _write(data_dir / ADDRESSES_FILE, "".join(f"{address}\n" for address in addresses))


def _write(file: Path, text: str) -> None:
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as out:
            out.write(text)
        temporary.replace(file)
    except OSError as error:
        raise Failure(f"--local-token: {file} cannot be written: {error.strerror}") from error
