"""Conversion of record values and errors to strings and bytes, for connectors."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from ..api.connector import Record
from ..errors import InvalidConfig, MagnetarError

_PLACE = re.compile(r"\{([^{}]*)\}")
_NAMES = ("key", "topic", "message_id")
_PROPERTY = "properties."
_KNOWN = "expected {key}, {topic}, {message_id} or {properties.name}"


def text_of(value: object) -> str:
    r"""Return another system's value as a string, with invalid UTF-8 bytes escaped as ``\xff``."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode(errors="backslashreplace")
    return json.dumps(value, ensure_ascii=False, default=str)


def payload_of(value: Any) -> bytes:
    """Return a record's value as bytes: empty for None, UTF-8 for strings, and JSON for objects created by a SerDe."""
    if isinstance(value, bytes):
        return value
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return json.dumps(value, ensure_ascii=False).encode()


def shown_path(path: str | Path) -> str:
    """Return a path as a valid UTF-8 string."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def failure_of(error: Exception, timeout_s: float) -> str:
    """Return why an HTTP request failed. A timeout, whose error has no message, is described by its duration."""
    return (
        f"{type(error).__name__}: {error}"
        if str(error)
        else f"no response within {timeout_s:g} s ({type(error).__name__})"
    )


class Unfilled(MagnetarError):
    """A record lacks a key or property that a template requires, as described in the message."""


class Template:
    """A string with the placeholders ``{key}``, ``{topic}``, ``{message_id}`` and ``{properties.name}``."""

    def __init__(self, key: str, text: str) -> None:
        """Parse a template.

        Args:
            key: option name, for error messages.
            text: the template. Without placeholders, the result is the same for every record.

        Raises:
            InvalidConfig: a placeholder is unknown.
        """
        self._parts = _PLACE.split(text)  # text and placeholder names alternate
        for name in self._parts[1::2]:
            if name not in _NAMES and not (name.startswith(_PROPERTY) and name != _PROPERTY):
                raise InvalidConfig(f"{key}: unknown placeholder {{{name}}}: {_KNOWN}")
        self.constant = text if len(self._parts) == 1 else None
        """The result if it is the same for every record, or None."""

    def of(self, record: Record) -> str:
        """Return the template with its placeholders replaced for a record.

        Raises:
            Unfilled: the record lacks the key or the property.
        """
        if self.constant is not None:
            return self.constant
        parts = self._parts
        return "".join(_filled(record, part) if index % 2 else part for index, part in enumerate(parts))


def _filled(record: Record, name: str) -> str:
    found: str | None
    if name == "key":
        found = record.key
    elif name == "topic":
        found = record.topic.rpartition("/")[2]
    elif name == "message_id":
        found = record.message_id
    else:
        found = record.properties.get(name.removeprefix(_PROPERTY))
    if found is None:
        raise Unfilled(f"record has no {'key' if name == 'key' else f'property {name.removeprefix(_PROPERTY)!r}'}")
    return found
