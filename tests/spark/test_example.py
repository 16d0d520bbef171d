"""The notebook-style example, run as its first lines say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import magnetar
import pytest

from tests.support.servers import Server

EXAMPLE = Path(magnetar.__file__).parent / "examples" / "spark" / "notebook_style.py"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_notebook_reads_and_writes_topics(cluster: Server, tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, str(EXAMPLE), cluster.service_url],
        capture_output=True, text=True, timeout=540, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr[-3000:]
    lines = shown.stdout.splitlines()
    assert "messages: 10000" in lines
    # Of each sensor every second temperature, 15 + 0, 2, 4, 6, 8 or 1, 3, 5, 7, 9.
    assert lines[-4:] == [
        'sensor-0 {"average":19.0}', 'sensor-1 {"average":20.0}',
        'sensor-2 {"average":19.0}', 'sensor-3 {"average":20.0}',
    ]  # fmt: skip
