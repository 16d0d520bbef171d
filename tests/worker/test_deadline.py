"""One bound over all steps of a request, and an answer that says what held it up."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.errors import ConnectionLost, InvalidConfig, RequestRefused
from magnetar.worker.cluster.hand_over import Deadline


async def test_a_broker_that_stays_away_is_named_when_the_time_is_over() -> None:
    async def ask() -> str:
        raise ConnectionLost("GET http://b/tenants: refused")

    deadline = Deadline(0.05)
    with pytest.raises(RequestRefused) as caught:
        async with deadline.bound():
            await deadline.ask(ask)
    assert caught.value.status == 503
    text = "nothing was changed within 0.05 s: GET http://b/tenants: refused; retry the request later"
    assert str(caught.value) == text
    assert deadline.remaining_s == 0


async def test_a_broker_that_comes_back_is_asked_again() -> None:
    asked = 0

    async def ask() -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ConnectionLost("away")
        return "there"

    deadline = Deadline(10)
    async with deadline.bound():
        assert await deadline.ask(ask) == "there"
    assert asked == 2


async def test_a_refusal_is_no_absence() -> None:
    async def ask() -> str:
        raise InvalidConfig("no")

    deadline = Deadline(10)
    with pytest.raises(InvalidConfig):
        async with deadline.bound():
            await deadline.ask(ask)


async def test_a_step_that_hangs_is_ended() -> None:
    deadline = Deadline(0.02)
    with pytest.raises(RequestRefused, match=r"^nothing was changed within 0\.02 s: the broker is slow"):
        async with deadline.bound():
            await asyncio.sleep(60)
