"""What targets of make install, and where they look for their tests: reading all others takes longer."""

from __future__ import annotations

import os
import shutil
import subprocess
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


PYTHON = """\
#!/bin/sh
echo "$*" >> "$CALLS"
[ "$1 $2" = "-m venv" ] || exit 0
mkdir -p "$3/bin"
cp "$0" "$3/bin/python"
cp "$0" "$3/bin/magnetar"
"""
"""Stands for Python: writes down its arguments, and makes environments that do the same."""


@pytest.mark.parametrize(
    ("runs", "installed"),
    [
        ([["demo"], ["demo"]], ["."]),
        ([["demo"], ["test"], ["demo"]], [".", "--editable .[dev]"]),
        ([["demo", "test"]], [".", "--editable .[dev]"]),
        ([["test", "demo"]], ["--editable .[dev]"]),
    ],
    ids=lambda value: " then ".join(" ".join(words) for words in value) if isinstance(value[0], list) else "",
)
def test_demo_never_replaces_the_editable_installation(
    tmp_path: Path, runs: list[list[str]], installed: list[str]
) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "setup.py"):
        shutil.copy(TESTS.parent / name, tmp_path)
    python, calls = tmp_path / "python", tmp_path / "calls"
    python.write_text(PYTHON)
    python.chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    for targets in runs:
        command = ["make", "-j1", f"PYTHON={python}", *targets]
        done = subprocess.run(
            command, cwd=tmp_path, env={**environ, "CALLS": str(calls)}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    prefix = "-m pip install "
    found = [line.removeprefix(prefix) for line in calls.read_text().splitlines() if line.startswith(prefix)]
    assert found == installed
