"""The scheduler manager over a log in memory: plans, rounds, lost answers."""

import pytest
from magnetar.errors import NotLeader
from magnetar.scheduler.manager import SchedulerManager, Workforce, plan
from magnetar.wire.functions_pb2 import Assignment, FunctionDetails, FunctionMetaData, Instance

from tests.metadata.memory_log import MemoryLog


def function(name: str = "f", parallelism: int = 1, version: int = 0) -> FunctionMetaData:
    details = FunctionDetails(tenant="t", namespace="n", name=name, parallelism=parallelism)
    return FunctionMetaData(functionDetails=details, version=version)


async def leading() -> tuple[SchedulerManager, MemoryLog, list[int]]:
    changes: list[int] = []
    storage = MemoryLog()
    manager = SchedulerManager(storage, lambda key: changes.append(1))
    await storage.lead(manager.log)
    return manager, storage, changes


BOTH = Workforce(frozenset("ab"))


async def test_a_round_publishes_what_is_missing_and_then_nothing() -> None:
    manager, log, changes = await leading()
    assert await manager.schedule(lambda: [function(parallelism=3)], BOTH) == 3
    assert sorted(manager.of_worker("a")) == ["t/n/f:0", "t/n/f:2"]
    assert sorted(manager.of_worker("b")) == ["t/n/f:1"]
    assert len(changes) == 3
    assert await manager.schedule(lambda: [function(parallelism=3)], BOTH) == 0
    assert len(log.records) == 3


async def test_an_update_is_published_to_the_same_workers() -> None:
    manager, _, _ = await leading()
    await manager.schedule(lambda: [function(parallelism=2)], BOTH)
    before = {key: held.workerId for key, held in manager.assignments().items()}
    assert await manager.schedule(lambda: [function(parallelism=2, version=1)], BOTH) == 2
    assert {key: held.workerId for key, held in manager.assignments().items()} == before
    assert all(held.instance.functionMetaData.version == 1 for held in manager.assignments().values())


async def test_less_parallelism_and_deletion_remove_instances() -> None:
    manager, log, _ = await leading()
    await manager.schedule(lambda: [function(parallelism=3), function("g")], BOTH)
    await manager.schedule(lambda: [function(parallelism=1, version=1)], BOTH)
    assert [str(key) for key in sorted(manager.assignments())] == ["t/n/f:0"]
    assert [key for key, value, _ in log.records[4:] if not value] == ["t/n/f:1", "t/n/f:2", "t/n/g:0"]


async def test_a_follower_schedules_nothing() -> None:
    manager, log, _ = await leading()
    manager.log.follow()
    assert await manager.schedule(lambda: [function()], BOTH) == 0
    assert log.records == []


async def test_after_a_lost_answer_the_log_is_read_before_anything_is_decided() -> None:
    manager, log, _ = await leading()
    log.fails_after_writing = True
    with pytest.raises(NotLeader):
        await manager.schedule(lambda: [function()], BOTH)
    await log.lead(manager.log)
    assert await manager.schedule(lambda: [function()], BOTH) == 0
    assert len(log.records) == 1


async def test_an_order_to_drain_comes_back_out_of_the_log_and_is_no_assignment() -> None:
    manager, log, changes = await leading()
    await manager.drain("w:1", "its life")
    await manager.drain("w:2", "")
    assert manager.drained() == {"w:1": "its life", "w:2": ""}
    await manager.drain("w:1", None)
    assert manager.drained() == {"w:2": ""}
    assert (dict(manager.assignments()), changes, manager.log.unreadable_records) == ({}, [], 0)
    manager.log.follow()
    with pytest.raises(NotLeader):
        await manager.drain("w:3", "")
    assert len(log.records) == 3


async def test_records_that_cannot_be_read_are_skipped_and_counted() -> None:
    manager, _, _ = await leading()
    manager.log.apply((1, 0), None, b"x", {})
    manager.log.apply((1, 1), "t/n/f:0", b"\xff\xff", {})
    manager.log.apply(
        (1, 2), "t/n/f:0", Assignment(instance=Instance(instanceId=1), workerId="w").SerializeToString(), {}
    )
    assert manager.log.unreadable_records == 3


def test_a_plan_is_the_same_whatever_the_order() -> None:
    functions = [function("g", 2), function("f", 3)]
    assert plan(functions, BOTH, {}) == plan(functions[::-1], Workforce(frozenset("ba")), {})
