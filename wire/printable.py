"""Makes foreign text safe to print on one line."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text with everything that a terminal would obey instead of show as an escape, line breaks too."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def one_line(text: str) -> str:
    """Return a text with every run of white space, line breaks included, as one space, and the rest `printable`."""
    return printable(" ".join(text.split()))
