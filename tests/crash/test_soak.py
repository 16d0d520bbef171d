"""A short `make soak-functions`: eight kills in half a minute, and every message counted; rates are not judged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sample import SEED

SECONDS = 30
TIMEOUT_S = 900
"""Beside the load: writing the input, two times the maximum, and a minute until what failed comes again."""


@pytest.mark.crash
def test_short_soak_counts_every_message_across_kills(tmp_path: Path) -> None:
    own = {"MAGNETAR_SOAK_S": str(SECONDS), "MAGNETAR_SOAK_SEED": os.environ.get(SEED) or "1", "TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    print(ran.stdout, ran.stderr)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for said in ("outputs of effectively_once", "counters of effectively_once", "counters of at_least_once"):
        assert said in ran.stdout
    kills = [line.rpartition("MiB  ")[2] for line in ran.stdout.splitlines() if " backlog " in line]
    kinds = [" ".join(kill.split()[: 2 if kill.startswith("state") else 1]) for kill in kills]
    assert kinds == ["instance", "worker", "state store", "broker"] * 2
    assert list(tmp_path.iterdir()) == []
