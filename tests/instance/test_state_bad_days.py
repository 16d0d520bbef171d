"""Functions with state while the state store is killed, frozen, full or behind a bad network."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import resource
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest
from magnetar.instance.unit import HELD_MESSAGES_MAX
from magnetar.runtime.interface import Instance, Runtime
from magnetar.runtime.process.runtime import ProcessInstance, ProcessRuntime

from tests.instance.byte_proxy import ByteProxy
from tests.instance.stateful import CLASS_NAME, WORD_COUNT, Stateful, has_error, random_texts, recount
from tests.support.calm import Calm
from tests.support.eventually import eventually, until
from tests.support.servers import Server, running

READER = """
def process(text, context):
    return str(context.get_state(text))
"""


@pytest.fixture
def state_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A store of this test's own, which it may kill."""
    with running("state-store", tmp_path_factory.mktemp("state")) as server:
        yield server


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def no_error(instance: Instance) -> bool:
    status = await instance.status()
    return status.running and not status.failureException


@pytest.mark.slow
async def test_kills_of_the_store_in_mid_stream_lose_nothing_and_count_nothing_twice(
    stateful: Stateful, state_store: Server
) -> None:
    rng = random.Random(7)
    spec = stateful.spec(WORD_COUNT, CLASS_NAME)
    instance = await stateful.start(spec)
    sent: list[bytes] = []
    for _ in range(4):
        texts = random_texts(rng, 3000)
        sent += texts
        batches = [texts[begin : begin + 50] for begin in range(0, 3000, 50)]
        await stateful.send(batches[:40])
        await asyncio.gather(stateful.send(batches[40:]), asyncio.to_thread(state_store.kill))
        # Whatever is on its way, or comes now, finds nobody.
        await stateful.send([[b"once more"]])
        sent.append(b"once more")
        began = Calm()
        status = await eventually(functools.partial(has_error, instance, spec.state_url), "error in status")
        assert began.calm_s < 2, began
        assert status.running
        assert "check that `magnetar state-store` is running there" in status.failureException
        assert spec.state_url in status.latestSystemExceptions[-1].exceptionString
        await asyncio.to_thread(state_store.restart)
        await until(functools.partial(no_error, instance))
    await stateful.all_acknowledged()
    expected = recount(sent)
    assert stateful.counters(list(expected)) == expected


@pytest.mark.slow
async def test_kills_of_the_instance_never_count_too_low(stateful: Stateful) -> None:
    rng = random.Random(9)
    texts = random_texts(rng, 12_000)
    spec = stateful.spec(WORD_COUNT, CLASS_NAME)
    runtime = ProcessRuntime()
    try:
        for round_ in range(4):
            instance = await runtime.start(replace(spec, control_socket=spec.control_socket.with_suffix(f".{round_}")))
            part = texts[round_ * 3000 : (round_ + 1) * 3000]
            await stateful.send([part[begin : begin + 30] for begin in range(0, 3000, 30)])

            async def has_stored(instance: ProcessInstance = instance) -> bool:
                return (await instance.status()).numSuccessfullyProcessed > 0

            await until(has_stored)
            if round_ < 3:
                os.kill(instance.process_id, signal.SIGKILL)
                assert "SIGKILL" in await instance.wait()
        await stateful.all_acknowledged()
    finally:
        await runtime.close()
    expected = recount(texts)
    found = stateful.counters(list(expected))
    missing = {word: (found[word], times) for word, times in expected.items() if (found[word] or 0) < times}
    assert not missing


async def test_answer_that_is_lost_after_the_commit_counts_nothing_twice(stateful: Stateful, state_url: str) -> None:
    async with ByteProxy(port_of(state_url)) as proxy:
        spec = replace(stateful.spec(WORD_COUNT, CLASS_NAME), state_url=f"bk://127.0.0.1:{proxy.port}")
        await stateful.start(spec)
        await stateful.connect()
        for round_ in range(1, 4):
            proxy.silence()
            await stateful.send([[b"a b a"]])

            async def is_stored(times: int = round_) -> bool:
                return stateful.counters(["a", "b"]) == {"a": 2 * times, "b": times}

            await until(is_stored)
            assert await stateful.backlog() == 1
            connections = proxy.connections
            proxy.cut()
            proxy.answer()
            await stateful.all_acknowledged()
            assert proxy.connections > connections
            assert await is_stored()


async def test_changes_that_wait_are_merged_into_one_call(stateful: Stateful, state_url: str) -> None:
    async with ByteProxy(port_of(state_url)) as proxy:
        spec = replace(stateful.spec(WORD_COUNT, CLASS_NAME), state_url=f"bk://127.0.0.1:{proxy.port}")
        instance = await stateful.start(spec)
        await stateful.connect()
        proxy.silence()
        before = int(stateful.tables.statistics()["rows_written"])
        for count in range(1, 31):
            await stateful.send([[b"a"]])

            async def is_processed(count: int = count) -> bool:
                return (await instance.status()).numSuccessfullyProcessed == count + 1  # and the first

            await until(is_processed)
        assert stateful.counters(["a"]) == {"a": 1}  # one call is under way, and none beside it
        proxy.answer()
        await stateful.all_acknowledged()
        assert stateful.counters(["a"]) == {"a": 30}
        written = int(stateful.tables.statistics()["rows_written"]) - before
        assert written <= 4  # the counter twice, and the writer's last call


@pytest.mark.slow
async def test_input_is_bounded_while_the_store_is_away(stateful: Stateful, state_store: Server) -> None:
    spec = stateful.spec(WORD_COUNT, CLASS_NAME)
    instance = await stateful.start(spec)
    await asyncio.to_thread(state_store.kill)
    await stateful.send([[b"a"] * 500] * 100)

    async def is_full() -> bool:
        return (await instance.status()).numReceived >= HELD_MESSAGES_MAX

    await until(is_full)
    await stateful.send([[b"b"]])  # had it not stopped, it would have gone on meanwhile
    assert (await instance.status()).numReceived <= HELD_MESSAGES_MAX + 1000
    await asyncio.to_thread(state_store.restart)
    await stateful.all_acknowledged()
    assert stateful.counters(["a", "b"]) == {"a": 50_000, "b": 1}


async def test_frozen_store_is_named_in_status_and_gone_on_with(stateful: Stateful, state_store: Server) -> None:
    spec = stateful.spec(WORD_COUNT, CLASS_NAME)
    instance = await stateful.start(spec)
    await stateful.connect()
    os.kill(state_store.pid, signal.SIGSTOP)
    try:
        await stateful.send([[b"a a"]])
        status = await eventually(functools.partial(has_error, instance, "has not answered for"), "error")
        assert status.running
        assert spec.state_url in status.failureException
    finally:
        os.kill(state_store.pid, signal.SIGCONT)
    await stateful.all_acknowledged()
    await until(functools.partial(no_error, instance))
    assert stateful.counters(["a"]) == {"a": 2}


async def test_read_waits_while_the_store_is_away(stateful: Stateful, state_store: Server) -> None:
    spec = stateful.spec(READER)
    instance = await stateful.start(spec)
    await asyncio.to_thread(state_store.kill)
    await stateful.send([[b"a", b"b"]])
    await eventually(functools.partial(has_error, instance, spec.state_url), "error in status")
    await asyncio.to_thread(state_store.restart)
    assert await stateful.receive(2) == [b"None", b"None"]
    status = await instance.status()
    assert (status.numUserExceptions, status.failureException) == (0, "")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_stop_ends_a_read_that_waits_and_its_message_comes_again(
    stateful: Stateful, state_store: Server, how: signal.Signals
) -> None:
    spec = stateful.spec(READER)
    instance = await stateful.start(spec)
    os.kill(state_store.pid, how)
    await stateful.send([[b"a", b"b"]])
    await eventually(functools.partial(has_error, instance, spec.state_url), "error in status")
    began = Calm()
    await instance.stop(30)
    assert began.calm_s < 3, began
    assert instance.leftover() == ""
    assert await instance.wait() == ""
    assert await stateful.backlog() == 1  # entry
    if how is signal.SIGSTOP:
        os.kill(state_store.pid, signal.SIGCONT)
    else:
        assert state_store.process is not None
        state_store.process.wait(30)
        await asyncio.to_thread(state_store.restart)
    await stateful.start(spec)
    assert await stateful.receive(2) == [b"None", b"None"]


async def test_what_is_on_its_way_is_stored_before_a_stop(stateful: Stateful, state_url: str) -> None:
    async with ByteProxy(port_of(state_url)) as proxy:
        spec = replace(stateful.spec(WORD_COUNT, CLASS_NAME), state_url=f"bk://127.0.0.1:{proxy.port}")
        instance = await stateful.start(spec)
        await stateful.connect()
        proxy.silence()
        await stateful.send([[b"a a"]])

        async def is_stored() -> bool:
            return stateful.counters(["a"]) == {"a": 2}

        await until(is_stored)
        stopping = asyncio.create_task(instance.stop(30))
        await asyncio.sleep(0.3)  # inside its grace
        proxy.answer()
        await stopping
    assert await stateful.backlog() == 0


async def test_full_disk_ends_the_instance_with_the_reason_and_acknowledges_nothing(
    stateful: Stateful, state_store: Server, any_runtime: Runtime
) -> None:
    texts = random_texts(random.Random(8), 2000)
    spec = stateful.spec(WORD_COUNT, CLASS_NAME)
    instance = await any_runtime.start(spec)
    # No file may grow any more: what a write is told then is what a full disk says.
    resource.prlimit(state_store.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    await stateful.send([texts])
    reason = await asyncio.wait_for(instance.wait(), 30)
    assert "StateStoreFailed" in reason
    assert await stateful.backlog() == 1  # entry
    resource.prlimit(state_store.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await stateful.start(spec)
    await stateful.all_acknowledged()
    expected = recount(texts)
    assert stateful.counters(list(expected)) == expected


async def test_wrong_address_of_the_store_is_the_reason(stateful: Stateful, any_runtime: Runtime) -> None:
    instance = await any_runtime.start(replace(stateful.spec(WORD_COUNT, CLASS_NAME), state_url="http://nowhere"))
    reason = await asyncio.wait_for(instance.wait(), 30)
    assert "invalid stateStorageServiceUrl 'http://nowhere': expected bk://host:port" in reason
