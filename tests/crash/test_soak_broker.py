"""A short `make soak`: all of its topics and consumers for some seconds; memory is not judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from .short_soak import short_soak

SECONDS = 10
TIMEOUT_S = 600
"""Beside the load: all consumers come, and what is delayed or refused is settled, late on a busy machine."""


@pytest.mark.crash
def test_short_soak_of_the_broker_settles_every_message(tmp_path: Path) -> None:
    said_all = short_soak("benchmarks.soak_broker", SECONDS, tmp_path, TIMEOUT_S)
    for said in (
        "200 topics",
        "as dead letters",
        "subscriptions: all 225 without backlog",
        "topics created and deleted",
    ):
        assert said in said_all
    assert list(tmp_path.iterdir()) == []
