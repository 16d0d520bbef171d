"""Which workers may run instances while some are being emptied."""

from __future__ import annotations

import pytest
from magnetar.errors import RequestRefused
from magnetar.worker.drains import Drains

THREE = {"a", "b", "c"}


def refusal(drains: Drains, worker: str, members: set[str], owners: set[str]) -> tuple[int, str]:
    with pytest.raises(RequestRefused) as caught:
        drains.begin(worker, members, owners)
    return caught.value.status, str(caught.value)


def test_drain_runs_until_the_worker_owns_nothing() -> None:
    drains = Drains()
    assert drains.status("a", THREE, {"a", "b"}) == {"status": "NOT_RUN", "lastError": ""}
    drains.begin("a", THREE, {"a", "b"})
    assert drains.available(THREE) == {"b", "c"}
    assert drains.status("a", THREE, {"a", "b"}) == {"status": "RUNNING", "lastError": ""}
    assert drains.status("a", THREE, {"b"}) == {"status": "SUCCESS", "lastError": ""}


def test_drained_worker_is_like_new_after_it_left() -> None:
    drains = Drains()
    drains.begin("a", THREE, set())
    assert drains.available({"b", "c"}) == {"b", "c"}
    assert drains.available(THREE) == THREE


def test_refusals_are_those_of_pulsar() -> None:
    drains = Drains()
    assert refusal(drains, "a", {"a"}, {"a"}) == (400, "Too few workers (need at least 2)")
    assert refusal(drains, "x", THREE, set()) == (400, "Worker x is not among the current workers in the system")
    drains.begin("a", THREE, {"a"})
    assert refusal(drains, "b", THREE, {"a"}) == (409, "Another drain is in progress")
    assert refusal(drains, "a", THREE, {"b"}) == (
        412,
        "Worker a was not yet removed after a prior drain op; try later",
    )
    drains.begin("b", THREE, {"c"})
    assert refusal(drains, "c", THREE, {"c"}) == (400, "Too few workers (need at least 2)")
    error = "Worker x not found in drain records"
    assert drains.status("x", THREE, set()) == {"status": "ERROR", "lastError": error}
