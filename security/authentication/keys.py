"""Loads keys and files named in settings, in all forms that Pulsar supports."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from ...errors import InvalidConfig

MAX_BYTES = 16 * 1024 * 1024


def key_bytes(setting: str, value: str) -> bytes:
    """Return the content that a setting refers to, as raw bytes.

    Args:
        setting: the setting's name, for errors.
        value: ``data:;base64,…``, ``file:///path``, an existing path, or base64-encoded content.

    Raises:
        InvalidConfig: the value has none of these forms, or cannot be read; the message does not contain it.
    """
    if value.startswith("data:"):
        return _of_data_url(setting, value)
    path = unquote_to_bytes(urlsplit(value).path).decode(errors="replace") if value.startswith("file:") else value
    try:
        if value.startswith("file:") or Path(path).exists():
            with Path(path).open("rb") as file:
                content = file.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise InvalidConfig(f"{setting}: {path} exceeds {MAX_BYTES} bytes")
            return content
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a valid path"
        if value.startswith("file:"):
            raise InvalidConfig(f"{setting}: cannot read {path}: {reason}") from error
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidConfig(
            f"invalid {setting}: expected data:;base64,…, file:///path, an existing path, or base64"
        ) from error


def _of_data_url(setting: str, value: str) -> bytes:
    head, comma, content = value.partition(",")
    if not comma:
        raise InvalidConfig(f"{setting}: data: URL without a comma: expected data:;base64,…")
    try:
        if head.endswith(";base64"):
            return base64.b64decode(unquote_to_bytes(content), validate=True)
        return unquote_to_bytes(content)
    except (binascii.Error, ValueError) as error:
        raise InvalidConfig(f"{setting}: invalid base64 in the data: URL") from error
