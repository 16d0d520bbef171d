"""Targets of make that look for their tests in one folder or in some files: reading all others takes longer."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def test_rounds_of_crashes_lie_in_files_that_name_their_mark() -> None:
    """`make test-slow` reads these alone."""
    assert 'grep -rl "mark\\.crash" tests --include="test_*.py"' in (TESTS.parent / "Makefile").read_text()
    others = [path for path in TESTS.rglob("*.py") if not path.name.startswith("test_")]
    assert not [path for path in others if "mark.crash" in path.read_text()]


@pytest.mark.parametrize("name", ["spark", "connectors"])
def test_all_tests_of_a_mark_lie_where_their_make_target_looks_for_them(name: str) -> None:
    target = next(line for line in (TESTS.parent / "Makefile").read_text().splitlines() if f'-m "{name} and' in line)
    assert f" tests/{name} " in target
    mark = "mark." + name
    marked = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py") if mark in path.read_text()}
    assert marked == {name}
