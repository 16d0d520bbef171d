"""`make test-spark` looks for Spark's tests in one folder, as reading all others takes longer than some of them."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
MARK = "mark." + "spark"


def test_all_tests_of_spark_lie_where_their_make_target_looks_for_them() -> None:
    target = next(line for line in (TESTS.parent / "Makefile").read_text().splitlines() if '-m "spark and' in line)
    assert " tests/spark " in target
    marked = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py") if MARK in path.read_text()}
    assert marked == {"spark"}
