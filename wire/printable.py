"""Makes untrusted text safe to print on one line."""

from __future__ import annotations

_TRACEBACK = "Traceback (most recent call last):"
_SUMMARY_CHARACTERS_MAX = 1000


def printable(text: str) -> str:
    """Return text with control characters, including line breaks, replaced with escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def one_line(text: str) -> str:
    """Return text with each run of whitespace, including line breaks, as one space, and the rest as in `printable`."""
    return printable(" ".join(text.split()))


def summary(reason: str) -> str:
    """Return a one-line summary of a failure's reason, without the frames of its traceback.

    If the text before the traceback is a sentence, only that is returned. If it is empty or ends with a colon, the
    error at the end of the traceback is appended, with all its lines.
    """
    said, traceback, frames = reason.partition(_TRACEBACK)
    said = said.strip()
    if traceback and (not said or said.endswith((":", "Exception Group"))):
        lines = frames.rpartition('  File "')[2].splitlines()[1:]
        begin = next((number for number, line in enumerate(lines) if line and not line[0].isspace()), -1)
        groups = [line.strip(" |") for line in frames.splitlines() if "ExceptionGroup: " in line]
        said = f"{said if said.endswith(':') else ''} {groups[0] if groups else ' '.join(lines[begin:])}"
    line = one_line(said)
    return line if len(line) <= _SUMMARY_CHARACTERS_MAX else f"{line[:_SUMMARY_CHARACTERS_MAX]}…"
