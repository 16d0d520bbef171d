"""Two workers believe that an instance is theirs: one runs it, the other waits and says for what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.interface import Instance, Runtime
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.runtime.thread.runtime import ThreadRuntime

from tests.support.eventually import until
from tests.support.instances import MakeSpec
from tests.support.servers import Server

pytestmark = pytest.mark.slow

WHO = "def process(text, context):\n    return f'{text}|{context.get_function_id()}'\n"


@pytest.fixture
async def runtimes(server: Server, request: pytest.FixtureRequest) -> AsyncIterator[list[Runtime]]:
    """Those of two workers."""
    kinds: list[Runtime] = [
        ProcessRuntime() if kind == "process" else ThreadRuntime(server.service_url) for kind in request.param
    ]
    yield kinds
    for runtime in kinds:
        await runtime.close()


async def is_running(instance: Instance) -> bool:
    return (await instance.status()).running


async def waits(instance: Instance) -> str:
    """Wait until the instance says that another has its lock; returns its words."""

    async def says() -> bool:
        return "is held by another client" in (await instance.status()).failureException

    await until(says)
    assert not await is_running(instance)
    return (await instance.status()).failureException


@pytest.mark.parametrize(
    "runtimes", [("thread", "thread"), ("process", "process"), ("process", "thread")], indirect=True, ids="-".join
)
async def test_second_of_two_equal_instances_waits_until_the_first_has_ended(
    runtimes: list[Runtime], client: AsyncClient, make_spec: MakeSpec, topic: str
) -> None:
    spec = replace(make_spec(WHO), locks_topic=f"{topic}-locks")
    first = await runtimes[0].start(spec)
    await until(lambda: is_running(first))
    second = await runtimes[1].start(twin(spec))
    said = await waits(second)
    assert spec.key in said
    assert f"{topic}-locks" in said
    producer = await client.create_producer(f"{topic}-in")
    consumer = await client.subscribe(f"{topic}-out", "test", ConsumerConfig(initial_position="Earliest"))
    for number in range(20):
        await producer.send(b"%d" % number)
    assert len({(await consumer.receive(30)).data for _ in range(20)}) == 20
    assert (await first.status()).numReceived == 20
    await first.stop(30)
    await until(lambda: is_running(second))
    await producer.send(b"more")
    assert (await consumer.receive(30)).data.startswith(b"more")
    assert (await second.status()).failureException == ""
    await second.stop(30)
    assert await second.wait() == ""


@pytest.mark.parametrize("runtimes", [("thread", "thread"), ("process", "process")], indirect=True, ids="-".join)
async def test_an_instance_that_waits_can_be_stopped(runtimes: list[Runtime], make_spec: MakeSpec, topic: str) -> None:
    spec = replace(make_spec(WHO), locks_topic=f"{topic}-locks")
    first = await runtimes[0].start(spec)
    await until(lambda: is_running(first))
    second = await runtimes[1].start(twin(spec))
    await waits(second)
    await second.stop(30)
    assert await second.wait() == ""
    third = await runtimes[1].start(twin(spec))
    await waits(third)
    await first.stop(30)
    await until(lambda: is_running(third))
    await third.stop(30)


def twin(spec: InstanceSpec) -> InstanceSpec:
    """The same instance on another worker."""
    return replace(
        spec,
        worker_id="other",
        log_file=spec.log_file.with_suffix(".other"),
        control_socket=spec.control_socket.with_suffix(".other"),
        last_words=spec.last_words.with_suffix(".other"),
    )
