"""Tests of `tests/support/text_only.py`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.text_only import main, program, with_other_changes

BEFORE = '''
"""Module."""

LIMIT = 3
"""Of tries."""


def f(x: int) -> str:  # why
    """Return it."""
    if x > LIMIT:
        raise ValueError(f"x={x} is more than {LIMIT:d}; give less")
    return "text"
'''


@pytest.mark.parametrize(
    ("old", "new", "docstrings", "strings"),
    [
        ('"""Return it."""', '"""Return the text."""', True, True),
        ("# why", "# because", True, True),
        ('"""Of tries."""', "", True, True),
        ('f"x={x} is more than {LIMIT:d}; give less"', 'f"more than {LIMIT}: {x!r}"', False, True),
        ('"text"', '"word"', False, True),
        ('f"x={x} is more than {LIMIT:d}; give less"', 'f"more than {LIMIT}"', False, False),
        ('f"x={x} is', 'f"x={x + 1} is', False, False),
        ("LIMIT = 3", "LIMIT = 4", False, False),
        ("x > LIMIT", "x >= LIMIT", False, False),
        ('return "text"', 'return b"text"', False, False),
    ],
)
def test_programs_are_equal_if_only_text_differs(old: str, new: str, docstrings: bool, strings: bool) -> None:
    assert BEFORE.count(old) == 1
    after = BEFORE.replace(old, new)
    assert (program(BEFORE) == program(after)) is docstrings
    assert (program(BEFORE, strings=True) == program(after, strings=True)) is strings


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    for name in ("a.py", "b.py", "Makefile", "page.md"):
        (tmp_path / name).write_text("# first\n")
    commit(tmp_path)
    return tmp_path


def git(checkout: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=checkout, check=True)


def commit(checkout: Path) -> None:
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "next")


def test_comments_and_markdown_are_text(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "a.py").write_text("# second\n")
    (checkout / "page.md").write_text("second\n")
    assert main(["HEAD"], checkout) == 0
    assert capsys.readouterr().out == "only text changed\n"


def test_other_changes_are_reported_by_path(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "a.py").write_text("second = 2\n")
    (checkout / "b.py").unlink()
    (checkout / "c.py").write_text("")
    (checkout / "Makefile").write_text("# second\n")
    commit(checkout)
    assert main(["HEAD~1", "HEAD"], checkout) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{name}: more than text changed" for name in ("Makefile", "a.py", "b.py", "c.py")
    ]


def test_newer_commits_of_the_base_branch_are_ignored(checkout: Path) -> None:
    git(checkout, "branch", "base")
    (checkout / "a.py").write_text("# second\n")
    commit(checkout)
    git(checkout, "checkout", "--quiet", "base")
    (checkout / "b.py").write_text("second = 2\n")
    commit(checkout)
    git(checkout, "checkout", "--quiet", "-")
    assert with_other_changes(checkout, "base") == []


def test_comparing_two_commits_ignores_the_working_tree(checkout: Path) -> None:
    (checkout / "a.py").write_text("# second\n")
    commit(checkout)
    (checkout / "a.py").write_text("third = 3\n")
    assert with_other_changes(checkout, "HEAD~1", "HEAD") == []
    assert with_other_changes(checkout, "HEAD~1") == ["a.py"]
