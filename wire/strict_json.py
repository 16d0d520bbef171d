"""Strict parsing of JSON from untrusted sources, which rejects unusual values on input.

Python's parser accepts non-JSON (``NaN``), out-of-range numbers (``1e400``, thousands of digits), strings that cannot
be encoded (unpaired surrogates), duplicate names, and nesting so deep that recursive code fails.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

MAX_DEPTH = 64
"""Maximum nesting of arrays and objects. No API here needs more than five levels."""
MAX_DIGITS = 300
"""Maximum number of digits of an integer, chosen so that the number also fits into a float."""
_MAX_SHOWN = 40


class NotJson(ValueError):
    """The text is not valid JSON, or contains a value that is not accepted. The message is one line."""


def read_json(text: bytes | str) -> Any:
    """Parse JSON text.

    Raises:
        NotJson: the text is not valid UTF-8 or JSON, a number is not finite or too long, a string contains an unpaired
            surrogate, an object has a duplicate name, or the nesting is deeper than `MAX_DEPTH`.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_whole,
            object_pairs_hook=_unique,
        )
    except NotJson:
        raise
    except RecursionError:
        raise NotJson(f"it is nested deeper than {MAX_DEPTH} levels") from None
    except UnicodeDecodeError as error:
        raise NotJson(f"it is not valid UTF-8: {error.reason} at byte {error.start}") from error
    except ValueError as error:
        raise NotJson(str(error)) from error
    if text.count("[") + text.count("{") > MAX_DEPTH or "\\u" in text or not text.isascii():
        _check(value, 0)
    return value


def _check(value: Any, depth: int) -> None:
    """Raise for nesting that is too deep, and for strings (including names) with an unpaired surrogate."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise NotJson(f"a string contains an unpaired surrogate: {value[error.start]!a}") from None
    elif isinstance(value, dict | list):
        if depth == MAX_DEPTH:
            raise NotJson(f"it is nested deeper than {MAX_DEPTH} levels")
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            _check(item, depth + 1)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        (double, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise NotJson(f"duplicate name {double[:_MAX_SHOWN]!a} in an object")
    return fields


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise NotJson(f"{text[:_MAX_SHOWN]} is too large for a number")
    return number


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise NotJson(f"a number has {len(text)} digits: the maximum is {MAX_DIGITS}")
    return int(text)


def _refuse_constant(name: str) -> None:
    raise NotJson(f"{name} is not a JSON number")
