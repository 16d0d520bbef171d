"""Texts of any length made fit for a log: bounded before anything is made of them, and what was cut is said.

A function may print a value of hundreds of megabytes. Each step of a log, into lines, with a time on each, into bytes,
would copy that; so it is cut first.
"""

from __future__ import annotations

LINE_CHARACTERS_MAX = 64 * 1024
TEXT_CHARACTERS_MAX = 1024 * 1024
"""Of one print or record."""
TEXT_LINES_MAX = 10_000


def bounded_lines(text: str) -> list[str]:
    """Return the lines of a text, at least one: each within `LINE_CHARACTERS_MAX`, all within the other bounds."""
    left_out = len(text) - TEXT_CHARACTERS_MAX
    lines = (text if left_out <= 0 else text[:TEXT_CHARACTERS_MAX]).splitlines() or [""]
    if len(lines) > TEXT_LINES_MAX:
        left_out = len(text) - sum(map(len, lines[:TEXT_LINES_MAX]))
        del lines[TEXT_LINES_MAX:]
    lines = [bounded(line, LINE_CHARACTERS_MAX) for line in lines]
    if left_out > 0:
        lines.append(
            f"… {left_out} of {len(text)} characters left out: a text in a log has at most {TEXT_CHARACTERS_MAX}"
            f" characters and {TEXT_LINES_MAX} lines"
        )
    return lines


def bounded(text: str, characters_max: int) -> str:
    """Return a text that is cut where it is too long, and says so."""
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]}… {len(text) - characters_max} of {len(text)} characters left out"
