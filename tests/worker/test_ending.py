"""Nothing of a stopped function runs any more: each worker says so, or the lock of its instance is taken away."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.errors import RequestRefused
from magnetar.wire.functions_pb2 import FunctionDetails, FunctionMetaData
from magnetar.worker.ending import Ending
from magnetar.worker.functions import FunctionName

NAME = FunctionName("t", "n", "f")
METADATA = FunctionMetaData(functionDetails=FunctionDetails(tenant="t", namespace="n", name="f"))
LOCKS = "persistent://public/functions/instances"


class World:
    """Instances and a broker, as far as they matter here."""

    def __init__(self, silent: set[str] | RequestRefused) -> None:
        self.silent = silent
        self.settled = [False, True]
        self.taken: list[tuple[str, str, bool]] = []
        held = {"consumers": [{"consumerName": "w2"}]}
        self.locks: dict[str, Any] = {
            "t/n/f:0": held, "t/n/f:1": {"consumers": []}, "t/n/f:2": held, "t/n/ff:0": held, "t/n/f/uuid/0/in": held,
        }  # fmt: skip
        self.ending = Ending(self, self, LOCKS)  # type: ignore[arg-type]

    async def settle(self, _name: FunctionName, _metadata: FunctionMetaData) -> bool:
        return self.settled.pop(0)

    async def not_ended(self, _name: FunctionName) -> set[str]:
        if isinstance(self.silent, RequestRefused):
            raise self.silent
        return self.silent

    async def topic_stats(self, topic: str) -> dict[str, Any]:
        assert topic == LOCKS
        return {"subscriptions": self.locks}

    async def delete_subscription(self, topic: str, subscription: str, *, is_forced: bool = False) -> bool:
        self.taken.append((topic, subscription, is_forced))
        return True


async def test_nothing_is_taken_where_every_worker_answers() -> None:
    world = World(set())
    await world.ending.run(NAME, METADATA)
    assert world.settled == []
    assert world.taken == []


async def test_locks_that_are_held_are_taken_from_a_worker_that_does_not_answer() -> None:
    world = World({"w2"})
    await world.ending.run(NAME, METADATA)
    assert world.taken == [(LOCKS, "t/n/f:0", True), (LOCKS, "t/n/f:2", True)]


async def test_a_function_that_was_started_meanwhile_is_left_alone() -> None:
    world = World(RequestRefused(409, "started meanwhile"))
    with pytest.raises(RequestRefused, match="started"):
        await world.ending.run(NAME, METADATA)
    assert world.taken == []
