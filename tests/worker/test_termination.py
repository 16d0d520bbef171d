"""Nothing of a stopped function runs any more: each worker says so, or the lock of its instance is taken away."""

from __future__ import annotations

import pytest
from magnetar.errors import ConnectionLost, RequestRefused
from magnetar.wire.functions_pb2 import FunctionDetails, FunctionMetaData
from magnetar.worker.functions.deletion import Termination
from magnetar.worker.functions.service import FunctionName

NAME = FunctionName("t", "n", "f")
METADATA = FunctionMetaData(
    functionDetails=FunctionDetails(tenant="t", namespace="n", name="f", parallelism=2), functionUuid="u"
)
LOCKS = "persistent://public/functions/instances"


class World:
    """Instances and a broker, as far as they matter here."""

    def __init__(self, silent: set[str] | RequestRefused) -> None:
        self.silent = silent
        self.settled = [False, True]
        self.held = {"t/n/f:0@u": 2}
        """Locks, and how often their holder gets them again."""
        self.durable: set[str] = set()
        self.ending = Termination(self, self, LOCKS)  # type: ignore[arg-type]

    async def settle(self, _name: FunctionName, _metadata: FunctionMetaData) -> bool:
        return self.settled.pop(0)

    async def not_ended(self, _name: FunctionName) -> set[str]:
        if isinstance(self.silent, RequestRefused):
            raise self.silent
        return self.silent

    async def create_subscription(self, topic: str, subscription: str) -> bool:
        assert topic == LOCKS
        if subscription in self.held or subscription in self.durable:
            return False
        self.durable.add(subscription)
        return True

    async def is_durable(self, topic: str, subscription: str) -> bool:
        return subscription in self.durable

    async def delete_subscription(self, topic: str, subscription: str, *, is_forced: bool = False) -> bool:
        assert is_forced
        self.held[subscription] -= 1
        if not self.held[subscription]:
            del self.held[subscription]
        return True


async def test_nothing_is_taken_where_every_worker_answers() -> None:
    world = World(set())
    await world.ending.run(NAME, METADATA)
    assert world.settled == []
    assert world.durable == set()


async def test_the_locks_of_a_worker_that_does_not_answer_are_taken_away_for_good() -> None:
    world = World({"w2"})
    await world.ending.run(NAME, METADATA)
    assert world.durable == {"t/n/f:0@u", "t/n/f:1@u"}
    assert world.held == {}
    world.settled = [True]
    await world.ending.run(NAME, METADATA)


async def test_a_holder_that_is_always_faster_fails_the_attempt() -> None:
    world = World({"w2"})
    world.held["t/n/f:0@u"] = 1000
    with pytest.raises(ConnectionLost, match="cannot take over the lock"):
        await world.ending.run(NAME, METADATA)


async def test_a_function_that_was_started_meanwhile_is_left_alone() -> None:
    world = World(RequestRefused(409, "started again meanwhile"))
    with pytest.raises(RequestRefused, match="started"):
        await world.ending.run(NAME, METADATA)
    assert world.durable == set()
