"""The example with three workers does what its first lines say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import magnetar
import pytest

SCRIPT = Path(magnetar.__file__).parent / "examples" / "three-workers" / "run.py"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_workers_take_the_part_of_a_killed_third(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, timeout=280, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    before, after = done.stdout.split("killed worker-2 (kill -9)")
    where = re.compile(r"who:(\d) runs on (worker-\d)")
    assert sorted(worker for _, worker in where.findall(before)) == [f"worker-{n}" for n in (1, 1, 2, 2, 3, 3)]
    assert [number for number, _ in where.findall(after)] == list("012345")
    assert sorted(worker for _, worker in where.findall(after)) == ["worker-1"] * 3 + ["worker-3"] * 3
