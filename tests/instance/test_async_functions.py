"""Async functions on lists: how many calls run, in which order, what becomes of those that fail or do not end."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from magnetar.instance.loop_watch import LoopWatch
from magnetar.state.client import TableClient
from magnetar.wire import functions_pb2 as records
from magnetar.wire.message_id import MessageId

from tests.instance.lists import LEDGER, ListInput, ListOutput
from tests.instance.stateful import counters
from tests.instance.test_pipeline_on_lists import BATCHES, IN, MESSAGES, MakeSpec, make_spec, running, until

__all__ = ["make_spec"]  # a fixture

LEAST, MOST, MANUAL, EXACT = records.ATLEAST_ONCE, records.ATMOST_ONCE, records.MANUAL, records.EFFECTIVELY_ONCE


def key_of(message: bytes) -> str:
    return message.split()[0].decode()


@pytest.mark.parametrize("guarantee", [LEAST, EXACT])
@pytest.mark.parametrize("seed", range(3))
async def test_calls_of_a_key_follow_each_other_and_keep_to_the_limit(
    make_spec: MakeSpec, guarantee: int, seed: int
) -> None:
    rng = random.Random(seed)
    limit, keys = rng.choice([1, 3, 1000]), rng.choice([1, 5, 100])
    numbers = iter(range(10_000))
    batches = [
        [b"k%d %d" % (rng.randrange(keys), next(numbers)) for _ in range(rng.choice([1, 2, 50]))] for _ in range(12)
    ]
    sent = [message for batch in batches for message in batch]
    failing = set(rng.sample(sent, min(5, len(sent)))) if guarantee == LEAST else set()
    pauses = {message.decode(): rng.choice([0, 0, 0.001, 0.01]) for message in sent}
    at_work: set[str] = set()
    most = 0

    async def process(text: str, context: Any) -> str:
        nonlocal most
        key = text.split()[0]
        assert key not in at_work
        at_work.add(key)
        most = max(most, len(at_work))
        try:
            await asyncio.sleep(pauses[text])
            assert context.get_message_key() == key
            if text.encode() in failing:
                failing.discard(text.encode())
                raise ValueError(text)
            return text
        finally:
            at_work.remove(key)

    source, sink = ListInput(IN, batches, key_of), ListOutput()
    spec = make_spec(guarantee)
    spec.details.customRuntimeOptions = json.dumps({"maxPendingAsyncRequests": limit})
    once = set(sent) - failing
    async with running(spec, process, source, sink) as pipeline:
        await until(lambda: all(map(source.is_done, range(len(batches)))))
    assert sorted(sink.messages) == sorted(sent), f"seed {seed}"
    by_key: dict[str, list[bytes]] = defaultdict(list)
    for message in sink.messages:
        if message in once:
            by_key[key_of(message)].append(message)
    for key, messages in by_key.items():
        assert messages == [message for message in sent if message in once and key_of(message) == key], f"seed {seed}"
    assert most <= min(limit, keys)
    assert pipeline.stats.total.processed == len(sent)


async def test_calls_run_at_once_up_to_the_limit(make_spec: MakeSpec) -> None:
    at_work, most = 0, 0
    everybody = asyncio.Event()

    async def process(text: str) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        while not everybody.is_set():  # noqa: ASYNC110  it belongs to another loop
            await asyncio.sleep(0.005)
        at_work -= 1

    spec = make_spec(LEAST)
    spec.details.customRuntimeOptions = '{"maxPendingAsyncRequests": 7}'
    source, sink = ListInput(IN, BATCHES), ListOutput()
    async with running(spec, process, source, sink):
        await until(lambda: at_work == 7)
        everybody.set()
        await until(lambda: all(map(source.is_done, range(4))))
    assert most == 7


async def test_retain_ordering_has_the_messages_of_a_topic_follow_each_other(make_spec: MakeSpec) -> None:
    async def process(text: str) -> str:
        await asyncio.sleep(0.005 if int(text[1:]) % 2 else 0)
        return text

    spec = make_spec(LEAST)
    spec.details.retainOrdering = True
    spec.details.source.subscriptionType = records.FAILOVER
    source, sink = ListInput(IN, BATCHES), ListOutput()
    async with running(spec, process, source, sink):
        await until(lambda: all(map(source.is_done, range(4))))
    assert sink.messages == MESSAGES


async def test_a_call_that_hangs_keeps_only_its_own_message_from_being_acknowledged(make_spec: MakeSpec) -> None:
    async def process(text: str) -> str:
        if text == "m4":
            await asyncio.sleep(3600)
        return text

    source, sink = ListInput(IN, BATCHES), ListOutput()
    began_s = time.monotonic()
    async with running(make_spec(LEAST), process, source, sink) as pipeline:
        await until(lambda: len(source.acknowledged) == len(MESSAGES) - 1)
        pipeline.stop(0.3)  # it is cancelled
    assert time.monotonic() - began_s < 10
    assert not pipeline.abandoned
    assert (1, 1) not in source.acknowledged
    assert b"m4" not in sink.messages


async def test_a_call_that_ends_in_time_is_done_when_the_instance_stops(make_spec: MakeSpec) -> None:
    began = threading.Event()

    async def process(text: str) -> str:
        began.set()
        await asyncio.sleep(0.1)
        return text

    source, sink = ListInput(IN, [[b"m0"]]), ListOutput()
    async with running(make_spec(LEAST), process, source, sink) as pipeline:
        await until(began.is_set)
        pipeline.stop(10)
    assert (sink.messages, source.acknowledged) == ([b"m0"], [(0, 0)])


async def test_a_call_that_raises_or_is_cancelled_comes_again(make_spec: MakeSpec) -> None:
    tries: list[str] = []

    async def process(text: str) -> str:
        tries.append(text)
        if tries.count(text) == 1 and text == "m4":
            raise ValueError(text)
        if tries.count(text) == 1 and text == "m7":
            raise asyncio.CancelledError
        return text

    source, sink = ListInput(IN, BATCHES), ListOutput()
    async with running(make_spec(LEAST), process, source, sink) as pipeline:
        await until(lambda: all(map(source.is_done, range(4))))
    assert sorted(sink.messages) == sorted(MESSAGES)
    assert sorted(tries) == sorted([*(m.decode() for m in MESSAGES), "m4", "m7"])
    latest = [one.exceptionString for one in pipeline.stats.status().latestUserExceptions]
    assert any("ValueError: m4" in text for text in latest)
    assert any("cancelled by its own code" in text for text in latest)


async def test_sys_exit_in_a_call_fails_its_message_only(make_spec: MakeSpec) -> None:
    async def process(text: str) -> str:
        await asyncio.sleep(0)
        if text == "m4":
            sys.exit("enough")
        return text

    source, sink = ListInput(IN, BATCHES), ListOutput()
    async with running(make_spec(LEAST), process, source, sink) as pipeline:
        await until(lambda: len(sink.messages) == len(MESSAGES) - 1)
        await until(lambda: pipeline.stats.total.user_exceptions >= 1)
        (text,) = {one.exceptionString for one in pipeline.stats.status().latestUserExceptions}
    assert "SystemExit: enough" in text
    assert b"m4" not in sink.messages


async def test_sys_exit_in_a_call_of_an_exact_function_ends_the_instance_with_the_reason(make_spec: MakeSpec) -> None:
    async def process(text: str) -> str:
        await asyncio.sleep(0)
        if text == "m4":
            sys.exit("enough")
        return text

    source, sink = ListInput(IN, BATCHES), ListOutput()
    with pytest.raises(AssertionError, match="enough"):
        async with running(make_spec(EXACT), process, source, sink) as pipeline:
            await asyncio.wait_for(asyncio.shield(pipeline.core.ended), 30)
    assert b"m4" not in sink.messages


async def test_a_function_acknowledges_what_each_of_its_calls_was_given(make_spec: MakeSpec) -> None:
    async def process(text: str, context: Any) -> None:
        await asyncio.sleep(0.001 * (12 - int(text[1:])))
        if int(text[1:]) % 2:
            context.ack(context.get_message_id(), context.get_current_message_topic_name())

    source, sink = ListInput(IN, BATCHES), ListOutput()
    async with running(make_spec(MANUAL), process, source, sink) as pipeline:
        await until(lambda: pipeline.stats.total.processed == len(MESSAGES))
    assert sorted(source.acknowledged) == [(n // 3, n % 3) for n in range(12) if n % 2]


async def test_a_task_that_outlives_its_call_has_no_message_any_more(make_spec: MakeSpec) -> None:
    refused: list[str] = []
    left: list[asyncio.Task[None]] = []

    async def process(text: str, context: Any) -> str:
        async def later() -> None:
            key = context.get_message_id().batch_index()
            await asyncio.sleep(0.05)
            try:
                context.get_message_id()
            except Exception as error:  # noqa: BLE001
                refused.append(f"{key}: {error}")

        left.append(asyncio.create_task(later()))
        await asyncio.sleep(0)
        return text

    source, sink = ListInput(IN, [[b"m0", b"m1"]]), ListOutput()
    async with running(make_spec(LEAST), process, source, sink):
        await until(lambda: len(refused) == 2)
    assert [text.partition(":")[0] for text in sorted(refused)] == ["0", "1"]
    assert all("not inside a call of the function" in text for text in refused)


async def test_state_of_a_call_that_fails_is_not_applied_and_calls_see_their_own(
    make_spec: MakeSpec, state_url: str, tables: TableClient
) -> None:
    tries: list[str] = []

    async def count(text: str, context: Any) -> str:
        tries.append(text)
        context.incr_counter("all", 1)
        context.put_state("own", text)
        await asyncio.sleep(0.002)
        if text == "m4" and tries.count(text) == 1:
            raise ValueError(text)
        assert context.get_state("own") == text.encode()
        return text

    source, sink = ListInput(IN, BATCHES), ListOutput()
    spec = make_spec(LEAST, state_url, "async-state")
    async with running(spec, count, source, sink):
        await until(lambda: all(map(source.is_done, range(4))))
    assert len(tries) == len(MESSAGES) + 1
    assert counters(tables, spec.function_name, ["all"]) == {"all": len(MESSAGES)}


async def test_state_and_outputs_are_there_once_effectively_once(
    make_spec: MakeSpec, state_url: str, tables: TableClient
) -> None:
    async def count(text: str, context: Any) -> str:
        await asyncio.sleep(0.001 * (12 - int(text[1:])))
        context.incr_counter("messages", 1)
        return text

    source, sink = ListInput(IN, BATCHES), ListOutput()
    spec = make_spec(EXACT, state_url, "async-exact")
    async with running(spec, count, source, sink):
        await until(lambda: source.mark_delete == 3)
    assert sink.messages == MESSAGES
    assert counters(tables, spec.function_name, ["messages"]) == {"messages": len(MESSAGES)}


async def test_the_line_that_holds_up_the_loop_is_named(make_spec: MakeSpec) -> None:
    going_on = threading.Event()

    async def process(text: str) -> str:
        going_on.wait(30)  # the line
        return text

    line = process.__code__.co_firstlineno + 1
    source, sink = ListInput(IN, [[b"m0"]]), ListOutput()
    spec = make_spec(LEAST)
    async with running(spec, process, source, sink) as pipeline:
        await until(lambda: "has blocked the event loop" in pipeline.status().failureException)
        assert f"line {line} of {__file__} (process)" in pipeline.status().failureException
        going_on.set()
        await until(lambda: pipeline.status().failureException == "")
        await until(lambda: source.is_done(0))
    assert "use await or asyncio.to_thread" in spec.log_file.read_text()


def test_a_loop_that_answers_in_time_is_not_named() -> None:
    now_s, reported = 100.0, list[str]()
    watch = LoopWatch(reported.append, lambda: now_s)
    loop = asyncio.new_event_loop()
    with watch.watching(loop):
        watch.tick()
        now_s += 0.5
        watch.tick()  # not long enough
        loop.run_until_complete(asyncio.sleep(0))
        watch.tick()
        assert (watch.trouble(), reported) == ("", [])
        now_s += 1.5
        watch.tick()
        now_s += 1
        watch.tick()
        assert "for 2 s" in watch.trouble() or "for 3 s" in watch.trouble()
        assert len(reported) == 1
        loop.run_until_complete(asyncio.sleep(0))
        assert watch.trouble() == ""
    loop.close()


async def test_a_limit_for_a_function_that_is_not_async_is_refused(make_spec: MakeSpec) -> None:
    spec = make_spec(LEAST)
    spec.details.customRuntimeOptions = '{"maxPendingAsyncRequests": 7}'
    with pytest.raises(AssertionError, match="maxPendingAsyncRequests is 7, but"):
        async with running(spec, lambda text: text, ListInput(IN, BATCHES), ListOutput()) as pipeline:
            await asyncio.wait_for(asyncio.shield(pipeline.core.ended), 30)


@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_what_a_seek_leaves_out_is_not_called_any_more(make_spec: MakeSpec, kind: str) -> None:
    """The function moves its input to the third entry while it holds all of them."""
    seen: list[str] = []

    def look(text: str, context: Any) -> None:
        seen.append(text)
        if len(seen) == 2:
            context.seek(IN, 0, MessageId(LEDGER, 1))  # behind the second

    async def process(text: str, context: Any) -> str:
        look(text, context)
        return text

    def generate(text: str, context: Any) -> Iterator[str]:
        look(text, context)
        yield text

    spec = make_spec(LEAST)
    spec.details.customRuntimeOptions = '{"maxPendingAsyncRequests": 1}' if kind == "async def" else ""
    source, sink = ListInput(IN, BATCHES), ListOutput()
    async with running(spec, process if kind == "async def" else generate, source, sink):
        await until(lambda: source.is_done(2) and source.is_done(3))
    assert seen[:2] == ["m0", "m1"]
    assert sorted(seen[2:]) == sorted(message.decode() for message in MESSAGES[6:]), seen
