"""Hostile values: data from other systems that some format cannot express or some driver cannot read.

Each is one message. What a connector does with it stands in its lane, in `sinks` and `sources`: it is carried exactly,
or it costs one record, which is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

LARGE_BYTES = 900_000
"""Of a text that is large for many systems, and fits into a message."""
OVERSIZED_BYTES = 6_000_000
"""Of a value that does not fit into one message of a topic."""


class Hostile(NamedTuple):
    """One message.

    Attributes:
        name: of what is hostile about it.
        number: its id.
        payload: its bytes.
    """

    name: str
    number: int
    payload: bytes


def _value(number: int, text: str) -> bytes:
    return f'{{"id": {number}, "text": {text}}}'.encode()


def good(number: int) -> bytes:
    """Return a message that every connector accepts."""
    return _value(number, f'"good {number}"')


_JSON_TEXTS: Mapping[str, str] = {
    # numbers
    "NaN": "NaN",
    "Infinity": "Infinity",
    "-Infinity": "-Infinity",
    "minus zero": "-0.0",
    "2**63": str(2**63),
    "10**40": str(10**40),
    "60 digits": "1" * 30 + "." + "2" * 30,
    "1e999": "1e999",
    # times
    "infinite time": '"infinity"',
    "time before Christ": '"0044-03-15 01:02:03 BC"',
    "hour 24": '"24:00"',
    "year 10000": '"10000-01-01T00:00:00Z"',
    "nanoseconds": '"2024-02-29T01:02:03.000000001Z"',
    "leap second": '"2016-12-31T23:59:60Z"',
    "odd offset": '"1883-11-18T12:03:58-04:56:02"',
    # texts
    "NUL": r'"a\u0000b"',
    "lone surrogate": r'"a\ud800b"',
    "byte order mark inside": '"a\ufeffb"',
    "line breaks": r'"a\r\nb\u0085c\u2028d"',
    "quotes and commas": r'"a\",' "'" ';`%s\\b"',
    "empty text": '""',
    "large text": '"' + "x" * LARGE_BYTES + '"',
    # nesting and nulls
    "10,000 deep": "[" * 10_000 + "]" * 10_000,
    "null": "null",
    "list of nulls": "[null, null]",
    "object of null": '{"a": {"b": null}}',
    "true": "true",
}
_FIRST = 100
_BYTES: Mapping[str, bytes] = {
    "Latin-1": b'{"id": 201, "text": "caf\xe9"}',
    "byte order mark": b"\xef\xbb\xbf" + _value(202, '"bom"'),
    "UTF-16": _value(203, '"wide"').decode().encode("utf-16"),
    "no JSON": b'{"id": 204, "text": ',
    "a list": b"[205]",
    "only null": b"null",
    "a number": b"207",
    "no object's end": b'{"id": 208} {"id": 208}',
    "empty": b"",
}
HOSTILE = (
    *(Hostile(name, number, _value(number, text)) for number, (name, text) in enumerate(_JSON_TEXTS.items(), _FIRST)),
    *(Hostile(name, number, payload) for number, (name, payload) in enumerate(_BYTES.items(), 201)),
)
OVERSIZED = Hostile("oversized", 300, _value(300, '"' + "x" * OVERSIZED_BYTES + '"'))
"""Only what a source reads can be so large."""
BY_NAME = {hostile.name: hostile for hostile in HOSTILE}
NOT_JSON = (
    "NaN",
    "Infinity",
    "-Infinity",
    "Latin-1",
    "byte order mark",
    "UTF-16",
    "no JSON",
    "no object's end",
    "empty",
)
NO_OBJECT = ("a list", "only null", "a number")
