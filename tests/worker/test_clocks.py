"""What goes after a time: packages without a name, subscriptions without a function."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.wire.functions_pb2 import FunctionDetails, FunctionMetaData
from magnetar.worker import cleanup
from magnetar.worker.broker_admin import BrokerAdmin
from magnetar.worker.cleanup import SubscriptionCleanup
from magnetar.worker.package_janitor import UnnamedClock


def test_a_package_goes_when_it_had_no_name_for_long_enough() -> None:
    clock = UnnamedClock(10.0)
    assert clock.expired(["a", "b"], {"b"}, now=100.0) == []
    assert clock.expired(["a", "b"], {"b"}, now=109.0) == []
    assert clock.expired(["a", "b"], {"b"}, now=110.0) == ["a"]


def test_a_package_that_got_its_name_counts_anew() -> None:
    clock = UnnamedClock(10.0)
    clock.expired(["a"], set(), now=100.0)
    assert clock.expired(["a"], {"a"}, now=109.0) == []
    assert clock.expired(["a"], set(), now=111.0) == []


class RecordingAdmin(BrokerAdmin):
    """Remembers what was asked; the subscription is in use for a while, and then comes back once."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.asked: list[tuple[str, str]] = []

    async def delete_subscription(self, topic: str, subscription: str) -> bool:
        self.asked.append((topic, subscription))
        return True


def function(*, cleans_up: bool) -> FunctionMetaData:
    details = FunctionDetails(tenant="t", namespace="n", name="f")
    details.source.inputSpecs["a"].SetInParent()
    details.source.cleanupSubscription = cleans_up
    return FunctionMetaData(functionDetails=details)


@pytest.mark.parametrize(("cleans_up", "exists", "times"), [(True, False, 3), (True, True, 0), (False, False, 0)])
async def test_subscriptions_are_removed_until_no_instance_can_come_back(
    monkeypatch: pytest.MonkeyPatch, cleans_up: bool, exists: bool, times: int
) -> None:
    monkeypatch.setattr(cleanup, "DELAYS_S", (0.0, 0.01, 0.02))
    async with RecordingAdmin() as admin:
        work = SubscriptionCleanup(admin, lambda name: exists)
        task = asyncio.create_task(work.run())
        work.add(function(cleans_up=cleans_up))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await asyncio.shield(task)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert admin.asked == [("a", "t/n/f")] * times
