"""Lossless conversion of PostgreSQL values from text to JSON.

Integer and floating-point types become numbers, ``numeric`` a string with all digits, ``bytea`` base64, and times ISO
8601 strings. ``json`` and ``jsonb`` are unchanged, and all other types become strings as displayed by PostgreSQL. The
``jdbc`` sink accepts this format.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring as quoted

_BOOL, _BYTEA, _JSON, _JSONB, _TIMESTAMP, _TIMESTAMPTZ = 16, 17, 114, 3802, 1114, 1184
_INTEGERS = (20, 21, 23, 26)
_FLOATS = (700, 701)

SETTINGS = "-c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC -c extra_float_digits=1 -c bytea_output=hex"
"""Connection settings required for the conversion."""


def _as_it_is(text: str) -> str:
    return text


def _bool(text: str) -> str:
    return "true" if text[0] == "t" else "false"


def _float(text: str) -> str:
    return quoted(text) if text in ("NaN", "Infinity", "-Infinity") else text


def _bytea(text: str) -> str:
    return f'"{binascii.b2a_base64(bytes.fromhex(text[2:]), newline=False).decode()}"'


def _timestamp(text: str) -> str:
    return f'"{text.replace(" ", "T", 1)}"'


def _timestamptz(text: str) -> str:
    return f'"{text.replace(" ", "T", 1).removesuffix("+00")}Z"' if text.endswith("+00") else quoted(text)


_ENCODERS: Mapping[int, Callable[[str], str]] = {
    _BOOL: _bool,
    _BYTEA: _bytea,
    _JSON: _as_it_is,
    _JSONB: _as_it_is,
    _TIMESTAMP: _timestamp,
    _TIMESTAMPTZ: _timestamptz,
    **dict.fromkeys(_INTEGERS, _as_it_is),
    **dict.fromkeys(_FLOATS, _float),
}


def encoder_of(type_oid: int) -> Callable[[str], str]:
    """Return the function that converts a type's text format to JSON."""
    return _ENCODERS.get(type_oid, quoted)
