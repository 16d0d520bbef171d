"""Which subscriptions of a deleted function go: its own, whoever holds them; shared ones only if nobody does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from magnetar.errors import ConnectionLost
from magnetar.wire.functions_pb2 import FunctionDetails, FunctionMetaData
from magnetar.worker.functions.deletion import SubscriptionCleanup

TOPIC = "persistent://t/n/in"
OWN = {"consumerName": "ours", "metadata": {"id": "t/n/f"}}
OTHER = {"consumerName": "theirs"}


def function(name: str, *, subscription: str = "", topics: tuple[str, ...] = (TOPIC,)) -> FunctionMetaData:
    metadata = FunctionMetaData(functionDetails=FunctionDetails(tenant="t", namespace="n", name=name))
    metadata.functionDetails.source.cleanupSubscription = True
    metadata.functionDetails.source.subscriptionName = subscription
    for topic in topics:
        metadata.functionDetails.source.inputSpecs[topic].SetInParent()
    return metadata


class Broker:
    """Subscriptions by topic and name, with their consumers."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        self.functions: list[FunctionMetaData] = []
        self.failure: Exception | None = None
        self.cleanup = SubscriptionCleanup(self, lambda: self.functions)  # type: ignore[arg-type]

    async def subscribers(self, topic: str, subscription: str) -> list[Mapping[str, Any]]:
        return self.held.get((topic, subscription), [])

    async def delete_subscription(self, topic: str, subscription: str, *, is_forced: bool = False) -> bool:
        if self.failure is not None:
            raise self.failure
        if self.held.get((topic, subscription)) and not is_forced:
            return False
        self.held.pop((topic, subscription), None)
        return True


@pytest.mark.parametrize("consumers", [[], [OWN], [OTHER]])
async def test_the_functions_own_subscription_goes_whoever_holds_it(consumers: list[Mapping[str, Any]]) -> None:
    broker = Broker()
    broker.held = {(TOPIC, "t/n/f"): consumers}
    await broker.cleanup.remove(function("f"))
    assert broker.held == {}


@pytest.mark.parametrize(
    ("consumers", "stays"), [([], False), ([OWN], False), ([OTHER], True), ([OWN, OTHER], True)], ids=str
)
async def test_one_of_another_name_stays_while_others_use_it(consumers: list[Mapping[str, Any]], stays: bool) -> None:
    broker = Broker()
    broker.held = {(TOPIC, "shared"): consumers}
    await broker.cleanup.remove(function("f", subscription="shared"))
    assert bool(broker.held) == stays


async def test_one_that_another_function_has_stays_there_although_that_is_stopped() -> None:
    broker = Broker()
    other = "persistent://t/n/other"
    broker.held = {(TOPIC, "shared"): [], (other, "shared"): []}
    broker.functions = [function("f", subscription="shared"), function("g", subscription="shared", topics=("in",))]
    broker.functions[1].functionDetails.source.inputSpecs[TOPIC].SetInParent()
    await broker.cleanup.remove(function("f", subscription="shared", topics=(TOPIC, other)))
    assert list(broker.held) == [(TOPIC, "shared")]


async def test_a_function_may_keep_its_subscription() -> None:
    broker = Broker()
    broker.held = {(TOPIC, "t/n/f"): []}
    metadata = function("f")
    metadata.functionDetails.source.cleanupSubscription = False
    await broker.cleanup.remove(metadata)
    assert broker.held


async def test_a_broker_that_does_not_answer_fails_the_deletion() -> None:
    broker = Broker()
    broker.failure = ConnectionLost("no broker")
    with pytest.raises(ConnectionLost):
        await broker.cleanup.remove(function("f"))
