"""A short `make soak`: all of its topics and consumers for some seconds; memory is not judged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sample import SEED

SECONDS = 10
TIMEOUT_S = 600
"""Beside the load: all consumers come, and what is delayed or refused is settled, late on a busy machine."""


@pytest.mark.crash
def test_short_soak_of_the_broker_settles_every_message(tmp_path: Path) -> None:
    own = {"MAGNETAR_SOAK_S": str(SECONDS), "MAGNETAR_SOAK_SEED": os.environ.get(SEED) or "1", "TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak_broker"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    print(ran.stdout, ran.stderr)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for said in ("200 topics", "as dead letters", "subscriptions: 225 without backlog", "topics made and deleted"):
        assert said in ran.stdout
    assert list(tmp_path.iterdir()) == []
