"""Log lines and messages hold nothing that a terminal obeys."""

from __future__ import annotations

import io
import logging

from magnetar.cli.servers.lifetime import LineFormatter
from magnetar.wire.printable import one_line, printable

HOSTILE = "a\x1b[2Jb\x07\r\nforged line\u2028\u202e\x9b1m\ud800\x00\ttab"


def logged(level: int, text: str, *arguments: object, failure: BaseException | None = None) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter("broker"))
    exc_info = None if failure is None else (type(failure), failure, failure.__traceback__)
    handler.emit(logging.LogRecord("any", level, "file", 1, text, arguments, exc_info))
    stream.flush()
    return stream.buffer.getvalue().decode()


def test_a_line_of_the_log_is_one_line_without_control_characters() -> None:
    line = logged(logging.WARNING, "GET %s failed: %s", HOSTILE, "caf\u00e9 \u65e5\u672c")
    assert line.endswith("\n")
    assert line.rstrip("\n").isprintable()
    assert "\\x1b[2Jb\\x07 forged line \\u202e\\x9b1m\\ud800\\x00\\ttab failed: caf\u00e9 \u65e5\u672c" in line


def test_a_line_of_the_log_names_process_and_logger() -> None:
    assert logged(logging.INFO, "ready").rstrip("\n").endswith("INFO    broker any: ready")
    assert logged(logging.WARNING, "late").rstrip("\n").endswith("WARNING broker any: late")


def test_a_traceback_keeps_its_lines_and_nothing_else() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        text = logged(logging.ERROR, "it failed", failure=error)
    lines = text.rstrip("\n").split("\n")
    assert len(lines) >= 5
    assert all(line.isprintable() for line in lines)


def test_a_message_on_the_terminal_is_one_line() -> None:
    assert printable("plain \u00e9") == "plain \u00e9"
    assert one_line(HOSTILE).isprintable()
    assert one_line(" a \n b ") == "a b"
