"""Secret files, and their URLs in Pulsar's parameters."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...errors import CredentialsUnavailable, InvalidConfig

SECRET_BYTES_MAX = 64 * 1024
_FILE = "file:"
_DATA = "data:"


def path_of(url: str, what: str) -> Path:
    """Return the path of ``file:///path`` or ``file:path``.

    Raises:
        InvalidConfig: the URL names another host, or has no path.
    """
    parsed = urlsplit(url)
    path = unquote(parsed.path)
    if parsed.netloc not in ("", "localhost") or not path:
        raise InvalidConfig(f"{what} is not a local file: use file:///path")
    return Path(path)


def read_secret(path: Path, what: str) -> bytes:
    """Return the content of a file. Blocking.

    Raises:
        CredentialsUnavailable: the file cannot be read, or exceeds `SECRET_BYTES_MAX` bytes.
    """
    try:
        with path.open("rb") as file:
            content = file.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise CredentialsUnavailable(f"cannot read {what} {path}: {error.strerror or error}") from error
    if len(content) > SECRET_BYTES_MAX:
        raise CredentialsUnavailable(f"{what} {path} exceeds {SECRET_BYTES_MAX} bytes")
    return content


def read_secret_at(url: str, what: str) -> bytes:
    """Return the content of a ``file:///path`` URL, a ``data:…;base64,…`` URL, or a path. Blocking.

    Raises:
        InvalidConfig: the URL is invalid; its content is not shown.
        CredentialsUnavailable: see `read_secret`.
    """
    if url.startswith(_DATA):
        kind, comma, content = url.partition(",")
        if not comma or not kind.endswith(";base64"):
            raise InvalidConfig(f"invalid data URL in {what}: expected data:application/json;base64,…")
        try:
            return base64.b64decode(content, validate=True)
        except binascii.Error as error:
            raise InvalidConfig(f"invalid base64 in the data URL of {what}") from error
    return read_secret(path_of(url, what) if url.startswith(_FILE) else Path(url), what)
