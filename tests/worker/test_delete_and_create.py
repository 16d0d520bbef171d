"""Two lives of one name: nothing of a deleted function touches what one created after it has."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from magnetar.client.config import ConsumerConfig
from magnetar.errors import NotAllowed
from magnetar.instance.identity import lock_name
from magnetar.wire.functions_pb2 import FunctionDetails, FunctionMetaData
from magnetar.worker.cluster.broker_admin import BrokerAdmin
from magnetar.worker.functions.deletion import Termination
from magnetar.worker.functions.service import FunctionName
from magnetar.worker.service import WorkerService

from tests.support.eventually import eventually

from .conftest import Cluster, worker_config

pytestmark = pytest.mark.slow

SOURCE = "def process(text):\n    return text\n"
SLOW_STOP = """
import time

def process(text):
    if text == "slow":
        time.sleep(1.5)
    return text
"""
URL = "/admin/v3/functions/public/default/{}"


async def send(cluster: Cluster, topic: str, *texts: str) -> None:
    producer = await cluster.client.create_producer(topic)
    for text in texts:
        await producer.send(text.encode())
    await producer.close()


class Outputs:
    """What comes out of a topic, in order."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    @classmethod
    async def of(cls, cluster: Cluster, topic: str) -> Outputs:
        config = ConsumerConfig(initial_position="Earliest")
        return cls(await cluster.client.subscribe(topic, "test", config))

    async def take(self, count: int) -> list[str]:
        texts = []
        for _ in range(count):
            message = await self._consumer.receive(30)
            self._consumer.ack(message)
            texts.append(message.data.decode())
        return texts


@pytest.fixture
def held_removals(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Holds every removal of a subscription until the event is set, or for a second."""
    may_go = asyncio.Event()
    delete = BrokerAdmin.delete_subscription

    async def held(self: BrokerAdmin, topic: str, subscription: str, **options: bool) -> bool:
        try:
            async with asyncio.timeout(1):
                await may_go.wait()
        except TimeoutError:
            pass
        return await delete(self, topic, subscription, **options)

    monkeypatch.setattr(BrokerAdmin, "delete_subscription", held)
    return may_go


async def test_a_new_function_begins_at_its_own_position_however_late_the_old_one_is_cleaned_up(
    cluster: Cluster, held_removals: asyncio.Event
) -> None:
    source, sink = cluster.topic("in"), cluster.topic("out")
    outputs = await Outputs.of(cluster, sink)
    keeper = await cluster.client.subscribe(source, "keeper", ConsumerConfig(initial_position="Earliest"))
    config = {"inputs": [source], "output": sink, "subscriptionPosition": "Earliest", "runtimeEnv": "thread"}
    assert (await cluster.create("again", SOURCE, **config)).status_code == 204
    await send(cluster, source, "a", "b")
    assert await outputs.take(2) == ["a", "b"]
    assert (await cluster.http.delete(URL.format("again"))).status_code == 204
    assert (await cluster.create("again", SOURCE, **config)).status_code == 204
    held_removals.set()
    await send(cluster, source, "c")
    assert await outputs.take(3) == ["a", "b", "c"]
    await keeper.close()


@pytest.mark.parametrize("runtime", ["thread", "process"])
async def test_rounds_of_delete_and_create_lose_nothing(cluster: Cluster, runtime: str) -> None:
    """What is published after each creation is processed, from the moment of its answer on."""
    source, sink = cluster.topic("in"), cluster.topic("out")
    outputs = await Outputs.of(cluster, sink)
    producer = await cluster.client.create_producer(source)
    for number in range(12):
        created = await cluster.create("loop", SOURCE, inputs=[source], output=sink, runtimeEnv=runtime)
        assert created.status_code == 204, created.text
        texts = [f"{number}-{index}" for index in range(3)]
        for text in texts:
            await producer.send(text.encode())
        assert await outputs.take(3) == texts
        assert (await cluster.http.delete(URL.format("loop"))).status_code == 204


async def test_delete_answers_when_the_last_message_is_done_and_the_subscription_gone(cluster: Cluster) -> None:
    source, sink = cluster.topic("in"), cluster.topic("out")
    outputs = await Outputs.of(cluster, sink)
    assert (await cluster.create("late", SLOW_STOP, inputs=[source], output=sink)).status_code == 204
    await send(cluster, source, "first")
    assert await outputs.take(1) == ["first"]
    await send(cluster, source, "slow")

    async def is_taken() -> bool:
        return bool((await cluster.get("late/stats"))["receivedTotal"] == 2)

    await eventually(is_taken, "message in hand")
    assert (await cluster.http.delete(URL.format("late"))).status_code == 204
    stats = await cluster.http.get(
        f"{cluster.broker.web_url}/admin/v2/persistent/public/default/{source.rpartition('/')[2]}/subscriptions"
    )
    assert stats.json() == []
    assert await outputs.take(1) == ["slow"]


async def test_another_worker_takes_a_creation_as_soon_as_the_deletion_is_answered(
    cluster: Cluster, tmp_path: Path
) -> None:
    namespace = cluster.service.config.functions_namespace
    other = WorkerService(worker_config(cluster.broker, tmp_path / "other", namespace, "other"))
    await other.start()
    try:
        source = cluster.topic("in")
        for _ in range(5):
            assert (await cluster.create("both", SOURCE, inputs=[source], runtimeEnv="thread")).status_code == 204
            deleted = await cluster.http.delete(f"{other.worker_url}{URL.format('both')}")
            assert deleted.status_code == 204, deleted.text
    finally:
        await other.stop()


async def test_a_lock_can_be_taken_away_for_good_from_whoever_holds_it(cluster: Cluster) -> None:
    topic = cluster.service.config.topic(cluster.service.config.locks_topic)
    metadata = FunctionMetaData(functionUuid="cut")
    metadata.functionDetails.MergeFrom(FunctionDetails(tenant="t", namespace="n", name="f", parallelism=1))
    lock = cluster.client.create_lock(topic, lock_name(metadata, 0), "w9")
    await lock.acquire()

    class Silent:
        """Instances of which one worker does not answer."""

        async def settle(self, *_of: object) -> bool:
            return True

        async def not_ended(self, *_of: object) -> set[str]:
            return {"w9"}

    async with aclosing(BrokerAdmin(cluster.broker.web_url)) as admin:
        for _ in range(2):
            await Termination(Silent(), admin, topic).run(FunctionName("t", "n", "f"), metadata)  # type: ignore[arg-type]
    async with asyncio.timeout(30):
        with pytest.raises(NotAllowed):
            await lock.wait_failed()
    metadata.functionUuid = "the next life"
    successor = cluster.client.create_lock(topic, lock_name(metadata, 0), "w9")
    await successor.acquire()
    await successor.close()
    await lock.close()
