"""Run a soak for some seconds, as its make target does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.sample import SEED


def short_soak(module: str, seconds: int, directory: Path, timeout_s: float) -> str:
    """Run a soak with temporary files in a directory; return its output, and fail if its verdict is negative."""
    own = {"MAGNETAR_SOAK_S": str(seconds), "MAGNETAR_SOAK_SEED": os.environ.get(SEED) or "1", "TMPDIR": str(directory)}
    ran = subprocess.run(
        [sys.executable, "-m", module],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    print(ran.stdout, ran.stderr)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
