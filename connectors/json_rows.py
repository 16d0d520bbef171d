"""Conversion of rows from other systems to JSON objects, with strings for values without a JSON type.

Times are ISO 8601, bytes are base64, decimals are strings with all digits, and non-finite numbers are the strings
``NaN``, ``Infinity`` and ``-Infinity``.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from datetime import time as time_of_day
from typing import Any


def json_text(value: Any) -> str:
    """Return a value as JSON."""
    try:
        return _encode(value)
    except ValueError:  # non-finite number
        return _encode(_finite(value))


def encoded(row: Mapping[str, Any]) -> bytes:
    """Return a row as UTF-8 JSON.

    Raises:
        UnicodeEncodeError: a string contains lone surrogates, which are not valid Unicode.
    """
    return json_text(row).encode()


def plain(value: Any) -> Any:
    """Convert a value without a JSON type."""
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return str(value)


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=plain, allow_nan=False).encode


def _finite(value: Any) -> Any:
    """Replace non-finite numbers in a value with strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {_finite(key): _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def unique_names(cells: Sequence[str]) -> list[str]:
    """Return unique column names: repeated names get a number, and empty names are replaced by their position."""
    names: dict[str, None] = {}
    numbers: dict[str, int] = {}  # last number added to each name
    for place, cell in enumerate(cells, 1):
        text = cell.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") or f"column{place}"
        name, number = text, numbers.get(text, 1)
        while name in names:
            number += 1
            name = f"{text}_{number}"
        names[name] = None
        numbers[text] = number
    return list(names)
