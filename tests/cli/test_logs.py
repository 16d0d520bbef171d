"""Lines of a log cannot steer the terminal that shows them, whatever names clients invent."""

from __future__ import annotations

import logging
import sys

from magnetar.cli.logs import LineFormatter


def line_of(text: str, *, fails: bool = False) -> str:
    failure = None
    if fails:
        try:
            raise ValueError(text)
        except ValueError:
            failure = sys.exc_info()
    record = logging.LogRecord("x", logging.INFO, __file__, 1, "%s is here", (text,), failure)
    return LineFormatter("broker").format(record)


def test_control_characters_are_written_as_escapes() -> None:
    line = line_of("a\x1b[31m\x07\x00\x9b\x7f\u202eb\udc80\r\nc\té")
    assert line.endswith(r"broker: a\x1b[31m\x07\x00\x9b\x7f\u202eb\udc80 c\té is here")
    assert line.isprintable()


def test_tracebacks_keep_their_lines_and_nothing_else_that_steers() -> None:
    lines = line_of("a\x1b[31m\nb", fails=True).splitlines()
    assert lines[0].endswith(r"a\x1b[31m b is here")
    assert lines[-2:] == [r"ValueError: a\x1b[31m", "b"]
    assert all(line.isprintable() for line in lines)
