"""Which workers may run instances while some are being emptied."""

from __future__ import annotations

import pytest
from magnetar.errors import RequestRefused
from magnetar.membership.drains import FORGET_S, Drains

THREE = {"a": "1", "b": "1", "c": "1"}


class Orders:
    """Drains, and the log that they read."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.drains = Drains(lambda: self.held)

    def begin(self, worker: str, lives: dict[str, str], owners: set[str]) -> None:
        self.held[worker] = self.drains.check(worker, lives, owners)

    def status(self, worker: str, lives: dict[str, str], owners: set[str]) -> str:
        return self.drains.status(worker, lives, owners)["status"]

    def refusal(self, worker: str, lives: dict[str, str], owners: set[str]) -> tuple[int, str]:
        with pytest.raises(RequestRefused) as caught:
            self.drains.check(worker, lives, owners)
        return caught.value.status, str(caught.value)


@pytest.fixture
def orders() -> Orders:
    return Orders()


def test_drain_runs_until_the_worker_owns_nothing(orders: Orders) -> None:
    assert orders.drains.status("a", THREE, {"a", "b"}) == {"status": "NOT_RUN", "lastError": ""}
    orders.begin("a", THREE, {"a", "b"})
    assert orders.drains.available(THREE) == {"b", "c"}
    assert orders.drains.status("a", THREE, {"a", "b"}) == {"status": "RUNNING", "lastError": ""}
    assert orders.drains.status("a", THREE, {"b"}) == {"status": "SUCCESS", "lastError": ""}


def test_drained_worker_that_was_cut_off_is_still_drained(orders: Orders) -> None:
    orders.begin("a", THREE, set())
    away = {"b": "1", "c": "1"}
    assert orders.drains.available(away) == {"b", "c"}
    assert orders.status("a", away, {"b"}) == "SUCCESS"
    assert orders.drains.forgotten(away, now=10.0) == []
    assert orders.drains.available(THREE) == {"b", "c"}
    assert orders.drains.forgotten(THREE, now=11.0) == []


def test_drained_worker_that_was_started_again_is_like_new_at_once(orders: Orders) -> None:
    orders.begin("a", THREE, set())
    anew = THREE | {"a": "2"}
    assert orders.drains.available(anew) == {"a", "b", "c"}
    assert orders.status("a", anew, set()) == "NOT_RUN"
    assert orders.drains.forgotten(anew, now=10.0) == ["a"]


def test_order_for_a_worker_that_never_comes_back_is_forgotten(orders: Orders) -> None:
    orders.begin("a", THREE, set())
    away = {"b": "1", "c": "1"}
    assert orders.drains.forgotten(away, now=10.0) == []
    assert orders.drains.forgotten(away, now=9.9 + FORGET_S) == []
    orders.drains.restart()
    assert orders.drains.forgotten(away, now=10.0 + FORGET_S) == []
    assert orders.drains.forgotten(away, now=10.0 + 2 * FORGET_S) == ["a"]
    orders.held.clear()
    assert orders.status("a", away, set()) == "ERROR"


def test_drained_workers_run_everything_where_nobody_else_is_left(orders: Orders) -> None:
    orders.begin("a", THREE, set())
    assert orders.drains.available({"a": "1"}) == {"a"}


def test_refusals_are_those_of_pulsar(orders: Orders) -> None:
    assert orders.refusal("a", {"a": "1"}, {"a"}) == (400, "Too few workers (need at least 2)")
    assert orders.refusal("x", THREE, set()) == (400, "Worker x is not among the current workers in the system")
    orders.begin("a", THREE, {"a"})
    assert orders.refusal("b", THREE, {"a"}) == (409, "Another drain is in progress")
    assert orders.refusal("a", THREE, {"b"}) == (
        412,
        "Worker a was not yet removed after a prior drain op; try later",
    )
    orders.begin("b", THREE, {"c"})
    assert orders.refusal("c", THREE, {"c"}) == (400, "Too few workers (need at least 2)")
    error = "Worker x not found in drain records"
    assert orders.drains.status("x", THREE, set()) == {"status": "ERROR", "lastError": error}
