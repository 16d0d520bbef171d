"""Parser for Pulsar's ``.conf`` files, which are Java properties.

A line is ``key=value``, ``key: value`` or ``key value``; whitespace around the separator is ignored. ``#`` or ``!``
starts a comment line. A line that ends in an odd number of backslashes continues on the next one, whose leading
whitespace is dropped. A backslash before ``t``, ``n``, ``r``, ``f`` or ``uXXXX`` produces the corresponding character,
and before any other character the character itself. If a key is repeated, the last value wins. All this follows
`java.util.Properties`; trailing whitespace of a value is dropped, as in Pulsar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BREAK = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(u)|(.)|$)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(text: str) -> dict[str, str]:
    """Return the values of a file by key, in order of first occurrence.

    Raises:
        ValueError: a backslash and ``u`` are not followed by four hexadecimal digits.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None  # it also matches an empty string
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        found[_unescaped(key[0])] = _unescaped(line[separator.end() :]).strip()
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Yield logical lines, without comments, empty lines and leading whitespace."""
    begun: list[str] = []
    for natural in _BREAK.split(text):
        line = natural.lstrip(_BLANKS)
        if not begun and (not line or line[0] in "#!"):
            continue
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            begun.append(line[:-1])
            continue
        yield "".join((*begun, line))
        begun = []
    if any(begun):
        yield "".join(begun)


def _unescaped(text: str) -> str:
    def meant(escape: re.Match[str]) -> str:
        code, bad, character = escape.groups()
        if bad:
            raise ValueError(f"\\u must be followed by four hexadecimal digits: {text!r}")
        return chr(int(code, 16)) if code else _CONTROLS.get(character or "", character or "")

    return _ESCAPE.sub(meant, text) if "\\" in text else text
