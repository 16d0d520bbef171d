"""Servers that are away for a moment are waited for; what waiting does not help is told at once."""

from __future__ import annotations

import pytest
from magnetar.errors import ConnectionLost, OperationTimeout, StateStoreUnavailable, TopicNotFound
from magnetar.spark.jobs import retries
from magnetar.spark.jobs.retries import with_retries


class Broker:
    """Fails with one error after the other, then answers; counts who asks, and who asks whether to go on."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.questions = 0
        self.checks = 0

    def question(self) -> str:
        self.questions += 1
        if self._errors:
            raise self._errors.pop(0)
        return "answer"

    def check(self) -> None:
        self.checks += 1


@pytest.fixture(autouse=True)
def without_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSE_S", 0.0)


def test_a_broker_that_is_away_is_asked_again() -> None:
    broker = Broker(ConnectionLost("away"), OperationTimeout("slow"), StateStoreUnavailable("away"))
    assert with_retries(broker.question, broker.check) == "answer"
    assert (broker.questions, broker.checks) == (4, 4)


def test_what_asking_again_does_not_help_is_told_at_once() -> None:
    broker = Broker(TopicNotFound("gone"))
    with pytest.raises(TopicNotFound):
        with_retries(broker.question, broker.check)
    assert broker.questions == 1


def test_the_last_error_is_told_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_DEADLINE_S", 0.0)
    broker = Broker(*[ConnectionLost(f"away {number}") for number in range(10**6)])
    with pytest.raises(ConnectionLost, match="away"):
        with_retries(broker.question, broker.check)


def test_nobody_is_asked_for_a_run_that_is_not_wanted_any_more() -> None:
    broker = Broker(*[ConnectionLost("away")] * 100)

    def check() -> None:
        if broker.questions == 2:
            raise InterruptedError("cancelled")

    with pytest.raises(InterruptedError):
        with_retries(broker.question, check)
    assert broker.questions == 2
