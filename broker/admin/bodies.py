"""Request body parsing, as lenient as Pulsar's.

Clients in four languages send numbers as strings, empty bodies or ``null``, each of which has a defined meaning. Each
function returns the value, or None if it is empty.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...web.answers import Refused
from ...wire.strict_json import NotJson, read_json

MAX_BODY_BYTES = 1024 * 1024
"""Maximum body size of an admin request. Function packages are forwarded, and not limited here."""
_MAX_INT = {32: (1 << 31) - 1, 64: (1 << 63) - 1}


def parse(body: bytes) -> Any:
    """Return the JSON value of a body, or None for an empty body.

    Raises:
        Refused: 400, the body is not JSON.
    """
    if not body.strip():
        return None
    try:
        return read_json(body)
    except NotJson as error:
        raise Refused(400, f"the request body is not valid JSON: {error}") from error


def as_object(value: Any, what: str) -> dict[str, Any] | None:
    """Return a JSON object, or None for null."""
    if value is None or isinstance(value, dict):
        return value
    raise _ill_typed(value, f"an object ({what})")


def as_text_map(value: Any, what: str) -> dict[str, str] | None:
    """Return a JSON object of strings, or None for null; numbers and booleans are converted to strings."""
    fields = as_object(value, what)
    if fields is None:
        return None
    return {key: _as_text(item, f"{what}, field {key}") for key, item in fields.items() if item is not None}


def as_string(value: Any, what: str) -> str | None:
    """Return a JSON string, or None for null; numbers and booleans are converted to strings."""
    return None if value is None else _as_text(value, what)


def as_text_list(value: Any, what: str) -> list[str] | None:
    """Return a JSON array of strings, or None for null."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise _ill_typed(value, f"an array ({what})")
    return [_as_text(item, what) for item in value]


def as_int(value: Any, what: str, bits: int = 32) -> int | None:
    """Return an integer, which may be a quoted string; fractions are truncated, and an empty string becomes None."""
    if isinstance(value, str):
        value = value.strip()
        if not value:
            return None
        try:
            value = int(value)
        except ValueError as error:
            raise _ill_typed(value, f"a number ({what})") from error
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _ill_typed(value, f"a number ({what})")
    number = int(value)
    if not -_MAX_INT[bits] - 1 <= number <= _MAX_INT[bits]:
        raise Refused(400, f"{what} {number} is out of range: the maximum is {_MAX_INT[bits]}")
    return number


def as_bool(value: Any, what: str) -> bool | None:
    """Return a boolean, which may be a quoted string or a number."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value != 0
    if isinstance(value, str) and value.lower() in ("true", "false", ""):
        return value.lower() == "true" if value else None
    raise _ill_typed(value, f"true or false ({what})")


def with_field(fields: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return a copy of a JSON object with one field set, or removed if the value is None."""
    others = {field: held for field, held in fields.items() if field != name}
    return others if value is None else others | {name: value}


def _as_text(value: Any, what: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise _ill_typed(value, f"a string ({what})")


def _ill_typed(value: Any, wanted: str) -> Refused:
    shown = json.dumps(value)
    return Refused(
        400, f"invalid value {shown[:80]}{'…' if len(shown) > 80 else ''} in the request body: expected {wanted}"
    )
