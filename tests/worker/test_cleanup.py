"""The subscriptions of a deleted function go, whoever leads by then; what is in use, or needed again, stays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from magnetar.errors import ConnectionLost
from magnetar.wire.functions_pb2 import FunctionDetails, FunctionMetaData
from magnetar.worker.cleanup import SubscriptionCleanup

from tests.support.eventually import eventually

GONE = FunctionMetaData(functionDetails=FunctionDetails(tenant="t", namespace="n", name="f"))
GONE.functionDetails.source.cleanupSubscription = True
GONE.functionDetails.source.inputSpecs["persistent://t/n/in"].SetInParent()


class Worker:
    """A cleanup, and what it finds around it."""

    def __init__(self, *, is_leading: bool) -> None:
        self.is_leading = is_leading
        self.exists = False
        self.tried: list[tuple[str, str]] = []
        self.failures: list[bool | Exception] = []
        self.cleanup = SubscriptionCleanup(self._delete, lambda name: self.exists, lambda: self.is_leading)

    async def _delete(self, topic: str, subscription: str) -> bool:
        self.tried.append((topic, subscription))
        failure = self.failures.pop(0) if self.failures else True
        if isinstance(failure, Exception):
            raise failure
        return failure

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.cleanup.run())
        await asyncio.sleep(0)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def has_tried(self) -> bool:
        return bool(self.tried)


async def test_follower_does_it_once_it_leads() -> None:
    worker = Worker(is_leading=False)
    async with worker.running():
        worker.cleanup.add(GONE)
        await asyncio.sleep(0.05)
        assert worker.tried == []
        worker.is_leading = True
        await eventually(worker.has_tried, "removal")
    assert worker.tried[0] == ("persistent://t/n/in", "t/n/f")


async def test_it_is_tried_again_while_in_use_or_unreachable() -> None:
    worker = Worker(is_leading=True)
    worker.failures = [False, ConnectionLost("no broker")]
    async with worker.running():
        worker.cleanup.add(GONE)

        async def is_done() -> bool:
            return len(worker.tried) >= 3

        await eventually(is_done, "third removal")


@pytest.mark.parametrize("reason", ["kept", "there again", "old"])
async def test_subscription_stays(reason: str) -> None:
    worker = Worker(is_leading=True)
    metadata = FunctionMetaData()
    metadata.CopyFrom(GONE)
    metadata.functionDetails.source.cleanupSubscription = reason != "kept"
    worker.exists = reason == "there again"
    if reason == "old":
        worker.cleanup.add(metadata)  # before it runs: read from the log at the worker's start
    async with worker.running():
        if reason != "old":
            worker.cleanup.add(metadata)
        await asyncio.sleep(0.15)
    assert worker.tried == []
