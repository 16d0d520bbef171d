"""When a server counts as quiet."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from benchmarks import machine


def use(monkeypatch: pytest.MonkeyPatch, cpu_s: Iterator[float]) -> None:
    monkeypatch.setattr(machine, "_cpu_of_tree_s", lambda pid: next(cpu_s))
    monkeypatch.setattr(machine, "QUIET_LOOK_S", 0.01)
    monkeypatch.setattr(machine, "QUIET_TIMEOUT_S", 0.1)


def test_server_is_quiet_once_it_uses_less_than_a_tenth_of_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([0.0, 0.02, 0.02, 0.03, 0.03, 0.0305])
    use(monkeypatch, seen)
    assert machine.wait_until_quiet(os.getpid())
    assert list(seen) == []


def test_server_that_never_rests_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, itertools.count(0.0, 0.01))
    assert not machine.wait_until_quiet(os.getpid())


def test_cpu_time_of_a_process_counts_what_is_below_it() -> None:
    own_s = machine.cpu_s(os.getpid())
    assert machine._cpu_of_tree_s(os.getpid()) >= own_s > 0
