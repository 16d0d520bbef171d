"""Waits between attempts, and calls that are repeated: as long as it helps, and no longer."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import ConnectionLost, TopicNotFound
from magnetar.tasks import Backoff, Retry


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(0, 1 << 32))
def test_waits_double_up_to_their_limit(initial_ms: int, factor: int, seed: int) -> None:
    initial_s, max_s = initial_ms / 1000, initial_ms * factor / 1000
    backoff = Backoff(initial_s, max_s, random.Random(seed))
    for _ in range(2):
        for step in range(15):
            full_s = min(initial_s * 2**step, max_s)
            assert max(initial_s, full_s * 0.91) <= backoff.next_s() <= full_s or step == 0
        backoff.reset()


def test_waits_begin_anew_after_something_that_ran_for_long() -> None:
    backoff = Backoff(0.1, 30, settled_s=10)
    waits = [backoff.after(0.01) for _ in range(12)]
    assert waits[:4] == [0.1, 0.2, 0.4, 0.8]
    assert waits[-1] == 30.0
    assert backoff.after(10) == 0.1


class Server:
    """Fails with one error after the other, then answers, on a clock that only waiting moves."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.now_s = 0.0
        self.asked_at: list[float] = []

    def ask(self) -> str:
        self.asked_at.append(self.now_s)
        if self._errors:
            raise self._errors.pop(0)
        return "answer"

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def retry(self, within_s: float = 10.0) -> str:
        retry = Retry((ConnectionLost, TopicNotFound), Backoff(1, 8), within_s, clock=lambda: self.now_s)
        return retry.call_blocking(self.ask, self.wait)


def test_a_call_is_repeated_until_it_succeeds() -> None:
    server = Server(ConnectionLost("1"), ConnectionLost("2"))
    assert server.retry() == "answer"
    assert server.asked_at == [0, 1, 3]


def test_the_last_attempt_is_made_at_the_end_of_the_time() -> None:
    server = Server(*[ConnectionLost(str(number)) for number in range(9)])
    with pytest.raises(ConnectionLost, match="4"):
        server.retry()
    assert server.asked_at == [0, 1, 3, 7, 10]


@pytest.mark.parametrize("error", [TopicNotFound("gone"), ValueError("not retried")])
def test_what_repeating_does_not_help_is_raised_at_once(error: Exception) -> None:
    server = Server(error)
    with pytest.raises(type(error)):
        server.retry()
    assert server.asked_at == [0]


async def test_a_coroutine_is_repeated_and_each_failure_told() -> None:
    server, told = Server(ConnectionLost("1"), ConnectionLost("2")), list[str]()

    async def ask() -> str:
        return server.ask()

    retry = Retry((ConnectionLost,), Backoff(0, 0), on_failure=lambda error: told.append(str(error)))
    assert await retry.call(ask) == "answer"
    assert told == ["1", "2"]
