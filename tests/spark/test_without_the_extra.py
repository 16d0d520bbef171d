"""The files of these tests where Spark is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COLLECT = """
import sys
import pytest

for name in ("pyarrow", "pyspark"):
    sys.modules[name] = None  # as if it were not installed
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", sys.argv[1]]))
"""


@pytest.mark.slow
def test_every_file_can_be_read_without_the_extra() -> None:
    command = [sys.executable, "-c", COLLECT, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, f"add the file to NEEDS_THE_EXTRA in conftest.py\n{done.stdout[-3000:]}"
