"""A short `make soak-functions`: eight kills in half a minute, and every message counted; rates are not judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from .short_soak import short_soak

SECONDS = 30
TIMEOUT_S = 900
"""Beside the load: writing the input, two times the maximum, and a minute until what failed comes again."""


@pytest.mark.crash
def test_short_soak_counts_every_message_across_kills(tmp_path: Path) -> None:
    said_all = short_soak("benchmarks.soak", SECONDS, tmp_path, TIMEOUT_S)
    for said in ("outputs of effectively_once", "counters of effectively_once", "counters of at_least_once"):
        assert said in said_all
    kills = [line.rpartition("MiB  ")[2] for line in said_all.splitlines() if " backlog " in line]
    kinds = [" ".join(kill.split()[: 2 if kill.startswith("state") else 1]) for kill in kills]
    assert kinds == ["instance", "worker", "state store", "broker"] * 2
    assert list(tmp_path.iterdir()) == []
