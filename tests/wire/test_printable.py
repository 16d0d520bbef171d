"""Foreign text on one line."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest
from magnetar.wire.printable import summary


def raised(raises: Callable[[], object]) -> str:
    try:
        raises()
    except (ValueError, SyntaxError, ExceptionGroup):
        return traceback.format_exc()
    raise AssertionError("nothing was raised")


def with_cause() -> None:
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error


def two_lines() -> None:
    raise ValueError("cannot write\n  this:\nline two ü\x1b[2J")


def group() -> None:
    raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("retrying (3 attempts): gone", "retrying (3 attempts): gone"),
        ("", ""),
        (raised(two_lines), "ValueError: cannot write this: line two ü\\x1b[2J"),
        (raised(with_cause), "ValueError: second"),
        (raised(lambda: compile("def f(:", "x.py", "exec")), "SyntaxError: invalid syntax"),
        (f"publish callback failed: {raised(with_cause)}", "publish callback failed: ValueError: second"),
        (f"the sink failed at message 1; correct it\n{raised(two_lines)}", "the sink failed at message 1; correct it"),
        ("Traceback (most recent call last):", ""),
        ("x" * 2000, "x" * 1000 + "…"),
    ],
)
def test_summary_is_one_line_without_frames(reason: str, line: str) -> None:
    assert summary(reason) == line


def test_summary_of_a_group_is_one_line() -> None:
    assert summary(raised(group)) == "ExceptionGroup: several (2 sub-exceptions)"
