"""Rounds that look only at the functions that changed: they decide what a look at all would, and look no further."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from magnetar.errors import NotLeader
from magnetar.scheduler.manager import Changed, SchedulerManager, Workforce
from magnetar.wire.functions_pb2 import FunctionDetails, FunctionMetaData

from tests.metadata.memory_log import MemoryLog

WORKERS = ("a", "b", "c")


class Cluster:
    """Functions that change, a scheduler that is told of them, and one that looks at all each time."""

    def __init__(self) -> None:
        self.functions: dict[str, FunctionMetaData] = {}
        self.changed: set[str] | None = None
        self.looks = 0
        self.log, self.full_log = MemoryLog(), MemoryLog()
        self.manager = SchedulerManager(self.log, lambda key: None)
        self.full = SchedulerManager(self.full_log, lambda key: None)

    async def lead(self) -> None:
        await self.log.lead(self.manager.log)
        await self.full_log.lead(self.full.log)

    def put(self, name: str, parallelism: int) -> None:
        before = self.functions.get(name)
        details = FunctionDetails(tenant="t", namespace="n", name=name, parallelism=parallelism)
        version = 0 if before is None else before.version + 1
        self.functions[name] = FunctionMetaData(functionDetails=details, version=version)
        self._note(name)

    def remove(self, name: str) -> None:
        self.functions.pop(name, None)
        self._note(name)

    def _note(self, name: str) -> None:
        if self.changed is not None:
            self.changed.add(f"t/n/{name}")

    def take_changed(self) -> Changed | None:
        taken, self.changed = self.changed, set()
        return None if taken is None else {name: self.functions.get(name.rpartition("/")[2]) for name in taken}

    def look(self) -> Iterable[FunctionMetaData]:
        self.looks += 1
        return list(self.functions.values())

    async def round(self, workforce: Workforce) -> int:
        written = await self.manager.schedule(self.look, workforce, self.take_changed)
        assert await self.full.schedule(lambda: list(self.functions.values()), workforce) == written
        assert dict(self.manager.assignments()) == dict(self.full.assignments())
        return written


@pytest.mark.parametrize("seed", range(40))
async def test_a_round_of_what_changed_decides_as_one_of_all(seed: int) -> None:
    chance = Random(seed)
    cluster = Cluster()
    await cluster.lead()
    workforce = Workforce(frozenset(WORKERS))
    for _ in range(40):
        for _ in range(chance.randrange(4)):
            name = f"f{chance.randrange(8)}"
            if chance.random() < 0.3:
                cluster.remove(name)
            else:
                cluster.put(name, chance.randrange(1, 4))
        if chance.random() < 0.2:
            there = frozenset(chance.sample(WORKERS, chance.randrange(4)))
            away = frozenset(WORKERS) - there if chance.random() < 0.5 else frozenset()
            workforce = Workforce(there, away, is_evened_out=chance.random() < 0.2)
        await cluster.round(workforce)


async def test_a_round_after_one_change_looks_at_no_other_function() -> None:
    cluster = Cluster()
    await cluster.lead()
    for number in range(50):
        cluster.put(f"f{number}", 1)
    workforce = Workforce(frozenset(WORKERS))
    assert await cluster.round(workforce) == 50
    assert cluster.looks == 1
    cluster.put("f7", 2)
    assert await cluster.round(workforce) == 2
    assert await cluster.round(workforce) == 0
    assert cluster.looks == 1


async def test_a_round_that_failed_is_followed_by_one_that_looks_at_all() -> None:
    cluster = Cluster()
    await cluster.lead()
    cluster.put("f", 1)
    workforce = Workforce(frozenset(WORKERS))
    await cluster.round(workforce)
    cluster.put("g", 1)
    cluster.log.fails_after_writing = True
    with pytest.raises(NotLeader):
        await cluster.manager.schedule(cluster.look, workforce, cluster.take_changed)
    await cluster.log.lead(cluster.manager.log)
    await cluster.full.schedule(lambda: list(cluster.functions.values()), workforce)
    cluster.looks = 0
    assert await cluster.round(workforce) == 0
    assert cluster.looks == 1


async def test_what_somebody_else_decided_makes_the_next_round_look_at_all() -> None:
    cluster = Cluster()
    await cluster.lead()
    cluster.put("f", 1)
    workforce = Workforce(frozenset(WORKERS))
    await cluster.round(workforce)
    cluster.manager.log.apply((10**9, 0), "t/n/f:0", b"", {})
    assert cluster.manager.of_function("t/n/f") == []
    assert cluster.looks == 1
    await cluster.manager.schedule(cluster.look, workforce, cluster.take_changed)
    assert cluster.looks == 2
