"""`make test-spark` and `make test-connectors` look for their tests in one folder: reading all others takes longer."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.mark.parametrize("name", ["spark", "connectors"])
def test_all_tests_of_a_mark_lie_where_their_make_target_looks_for_them(name: str) -> None:
    target = next(line for line in (TESTS.parent / "Makefile").read_text().splitlines() if f'-m "{name} and' in line)
    assert f" tests/{name} " in target
    mark = "mark." + name
    marked = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py") if mark in path.read_text()}
    assert marked == {name}
