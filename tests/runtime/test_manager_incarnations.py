"""Two incarnations of one instance on a worker: the second begins when the first has ended, which can be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.manager import InstanceEnvironment, RuntimeManager
from magnetar.wire.functions_pb2 import (
    STOPPED,
    Assignment,
    FunctionDetails,
    FunctionMetaData,
    FunctionStatus,
    Instance,
    MetricsData,
    PackageLocationMetaData,
)

KEY = "t/n/f:0"


class Slow:
    """An instance that ends when it may."""

    def __init__(self, runtime: Runtime) -> None:
        self.may_end = asyncio.Event()
        self._runtime = runtime
        self._is_told = asyncio.Event()

    async def status(self) -> FunctionStatus:
        return FunctionStatus(running=True)

    async def metrics(self, reset: bool = False) -> MetricsData:
        return MetricsData()

    async def stop(self, grace_s: float) -> None:
        self._is_told.set()

    def death(self) -> str:
        return ""

    def leftover(self) -> str:
        return ""

    async def wait(self) -> str:
        await self._is_told.wait()
        await self.may_end.wait()
        return ""


class Runtime:
    """Makes them."""

    def __init__(self) -> None:
        self.started: asyncio.Queue[Slow] = asyncio.Queue()
        self.is_asked = asyncio.Event()
        self.may_start = asyncio.Event()
        self.may_start.set()

    async def warm_up(self) -> None:
        pass

    async def start(self, spec: InstanceSpec) -> Slow:
        self.is_asked.set()
        await self.may_start.wait()
        instance = Slow(self)
        self.started.put_nowait(instance)
        return instance

    async def close(self) -> None:
        pass


def assignment(*, version: int, is_stopped: bool = False) -> dict[str, Assignment]:
    metadata = FunctionMetaData(version=version)
    metadata.functionDetails.MergeFrom(FunctionDetails(tenant="t", namespace="n", name="f", parallelism=1))
    if is_stopped:
        metadata.instanceStates[0] = STOPPED
    return {KEY: Assignment(instance=Instance(functionMetaData=metadata), workerId="w")}


async def fetch(_location: PackageLocationMetaData) -> Path:
    return Path("f.py")


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


@pytest.fixture
async def manager(runtime: Runtime, tmp_path: Path) -> AsyncIterator[RuntimeManager]:
    around = InstanceEnvironment(worker_id="w", service_url="", admin_url="", data_dir=tmp_path)
    manager = RuntimeManager({"process": runtime}, fetch, around)
    yield manager
    await manager.close()


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_an_instance_that_comes_back_waits_for_its_predecessor(manager: RuntimeManager, runtime: Runtime) -> None:
    await manager.apply(assignment(version=0))
    first = await runtime.started.get()
    await manager.apply({})
    await manager.apply(assignment(version=0))
    await turns()
    assert runtime.started.empty(), "two incarnations of one instance at once"
    first.may_end.set()
    second = await runtime.started.get()
    second.may_end.set()


async def test_the_end_of_a_stopped_or_removed_function_is_waited_for(
    manager: RuntimeManager, runtime: Runtime
) -> None:
    await manager.apply(assignment(version=0))
    assert not await manager.ended("t/n/f"), "it is to run"
    first = await runtime.started.get()
    for assignments in (assignment(version=1, is_stopped=True), {}):
        await manager.apply(assignments)
        waiting = asyncio.create_task(manager.ended("t/n/f"))
        assert await manager.ended("t/n/ff")
        await turns()
        assert not waiting.done()
        waiting.cancel()
    first.may_end.set()
    assert await manager.ended("t/n/f")


async def test_one_that_was_about_to_start_when_it_was_stopped_is_waited_for(
    manager: RuntimeManager, runtime: Runtime
) -> None:
    runtime.may_start.clear()
    await manager.apply(assignment(version=0))
    await runtime.is_asked.wait()
    await manager.apply(assignment(version=1, is_stopped=True))
    waiting = asyncio.create_task(manager.ended("t/n/f"))
    await turns()
    assert not waiting.done()
    runtime.may_start.set()
    (await runtime.started.get()).may_end.set()
    assert await waiting
