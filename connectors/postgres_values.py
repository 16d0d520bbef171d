"""Values of PostgreSQL as JSON, made of their texts, so that no digit is lost.

Numbers of integer and floating types are numbers, ``numeric`` is a text with all digits, ``bytea`` base64, times ISO
texts, ``json`` and ``jsonb`` what they are; everything else is the text that PostgreSQL shows. This is what the sink
``jdbc`` takes back.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring as quoted

_BOOL, _BYTEA, _JSON, _JSONB, _TIMESTAMP, _TIMESTAMPTZ = 16, 17, 114, 3802, 1114, 1184
_INTEGERS = (20, 21, 23, 26)
_FLOATS = (700, 701)

SETTINGS = "-c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC -c extra_float_digits=1 -c bytea_output=hex"
"""Of a connection whose texts are turned into JSON."""


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
    """Return what makes JSON of a type's texts."""
    return _ENCODERS.get(type_oid, quoted)
