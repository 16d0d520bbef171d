"""Every kind of function with every guarantee, on lists: outputs, acknowledgements, failures, order, limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from magnetar.api import batch_function
from magnetar.instance.spec import InstanceSpec
from magnetar.wire import functions_pb2 as records

from tests.instance.lists import ListInput, ListOutput
from tests.instance.test_pipeline_on_lists import BATCHES, EVERYTHING, IN, MESSAGES, make_spec, running, until

__all__ = ["make_spec"]  # a fixture

MakeSpec = Callable[..., InstanceSpec]
LEAST, MOST, MANUAL, EXACT = records.ATLEAST_ONCE, records.ATMOST_ONCE, records.MANUAL, records.EFFECTIVELY_ONCE
GUARANTEES = [LEAST, MOST, MANUAL, EXACT]


def generate(text: str) -> Iterator[str | None]:
    yield text + "a"
    yield None
    yield text + "b"


async def wait(text: str) -> str:
    await asyncio.sleep(0.01 if text[-1] in "048" else 0)
    return text + "a"


async def wait_and_generate(text: str) -> AsyncIterator[str]:
    yield text + "a"
    await asyncio.sleep(0)
    yield text + "b"


@batch_function
def together(texts: list[str]) -> list[str | None]:
    return [text + "a" for text in texts]


KINDS = {generate: "ab", wait: "a", wait_and_generate: "ab", together: "a"}


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("function", KINDS, ids=lambda function: function.__name__)
async def test_each_kind_gives_its_outputs_once(make_spec: MakeSpec, guarantee: int, function: Any) -> None:
    source, sink = ListInput(IN, BATCHES), ListOutput()
    expected = [message + suffix.encode() for message in MESSAGES for suffix in KINDS[function]]
    async with running(make_spec(guarantee), function, source, sink) as pipeline:
        await until(lambda: len(sink.messages) == len(expected) and pipeline.stats.total.processed == len(MESSAGES))
        if guarantee != MANUAL:
            await until(lambda: all(map(source.is_done, range(4))))
    if guarantee == EXACT or function in (generate, together):
        assert sink.messages == expected
    assert sorted(sink.messages) == sorted(expected)
    assert sorted(source.acknowledged) == ([] if guarantee in (MANUAL, EXACT) else EVERYTHING)


async def ended(
    spec: InstanceSpec, function: Any, batches: list[list[bytes]], done: Callable[[ListInput, ListOutput, Any], bool]
) -> tuple[ListInput, ListOutput, Any]:
    """Run a function until it has done what it is to do."""
    source, sink = ListInput(IN, batches), ListOutput()
    async with running(spec, function, source, sink) as pipeline:
        await until(lambda: done(source, sink, pipeline.stats.total))
    return source, sink, pipeline


def all_done(source: ListInput, sink: ListOutput, total: Any) -> bool:
    return all(map(source.is_done, range(len(source.entries))))


async def test_a_generator_that_fails_midway_comes_again_as_a_whole(make_spec: MakeSpec) -> None:
    tries: list[str] = []

    def fail_once(text: str) -> Iterator[str]:
        tries.append(text)
        yield text + "a"
        if text == "m4" and tries.count(text) == 1:
            raise ValueError(text)
        yield text + "b"

    _, sink, pipeline = await ended(make_spec(LEAST), fail_once, BATCHES, all_done)
    # What was not sent when it failed is not sent at all.
    assert sorted(sink.messages) == sorted(m + suffix for m in MESSAGES for suffix in (b"a", b"b"))
    assert sorted(tries) == sorted([*(m.decode() for m in MESSAGES), "m4"])
    assert (pipeline.stats.total.user_exceptions, pipeline.stats.total.processed) == (1, len(MESSAGES))


async def test_outputs_of_a_generator_leave_while_it_runs_and_its_input_waits_for_the_last(make_spec: MakeSpec) -> None:
    going_on = asyncio.Event()

    def endless(text: str) -> Iterator[str]:
        number = 0
        while not going_on.is_set():
            number += 1
            yield f"{text} {number}"
            time.sleep(0.002)
        yield "last"

    source, sink = ListInput(IN, [[b"m0"]]), ListOutput()
    async with running(make_spec(LEAST), endless, source, sink):
        await until(lambda: len(sink.messages) > 3)
        assert source.acknowledged == []
        sink.holds_back = True
        going_on.set()
        await asyncio.sleep(0.05)
        assert source.acknowledged == []
        sink.release()
        await until(lambda: source.is_done(0))
    assert sink.messages[-1] == b"last"
    assert sink.messages[:-1] == [b"m0 %d" % number for number in range(1, len(sink.messages))]


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_endless_generator_ends_when_the_instance_stops_and_comes_again(
    make_spec: MakeSpec, is_async: bool
) -> None:
    closed: list[str] = []

    def endless(text: str) -> Iterator[str]:
        try:
            while True:
                yield text
        finally:
            closed.append(text)

    async def endless_async(text: str) -> AsyncIterator[str]:
        try:
            while True:
                yield text
        finally:
            closed.append(text)

    source, sink = ListInput(IN, [[b"m0"]]), ListOutput()
    async with running(make_spec(LEAST), endless_async if is_async else endless, source, sink) as pipeline:
        await until(lambda: len(sink.messages) > 2000)
        pipeline.stop(0.5)
    assert closed == ["m0"]
    assert not pipeline.abandoned
    assert source.acknowledged == []


async def test_items_of_a_batch_fail_alone_and_come_again_alone(make_spec: MakeSpec) -> None:
    seen: list[list[str]] = []

    @batch_function
    def some(texts: list[str]) -> list[Any]:
        seen.append(texts)
        return [ValueError(text) if text == "m4" and len(seen) == 1 else text for text in texts]

    source, sink = ListInput(IN, [MESSAGES]), ListOutput()
    async with running(make_spec(LEAST), some, source, sink) as pipeline:
        await until(lambda: source.is_done(0))
    assert seen == [[message.decode() for message in MESSAGES], ["m4"]]
    assert sink.messages == [*(message for message in MESSAGES if message != b"m4"), b"m4"]
    assert pipeline.stats.total.user_exceptions == 1


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (lambda texts: texts[1:], "received 3 values and returned 2 items"),
        (lambda texts: dict.fromkeys(texts), "received 3 values and returned dict"),
        (lambda texts: 1 / 0, "ZeroDivisionError"),
    ],
)
async def test_a_batch_call_without_a_result_for_each_fails_all(
    make_spec: MakeSpec, returned: Any, reason: str
) -> None:
    @batch_function
    def wrong(texts: list[str]) -> Any:
        return returned(texts)

    spec = make_spec(MOST)
    _, sink, pipeline = await ended(spec, wrong, [BATCHES[0]], lambda _, __, total: total.user_exceptions == 3)
    assert sink.messages == []
    assert all(reason in one.exceptionString for one in pipeline.stats.status().latestUserExceptions)
    assert spec.log_file.read_text().count("Traceback") == 1


@pytest.mark.parametrize("guarantee", [LEAST, EXACT])
async def test_a_batch_is_as_large_as_it_says_and_knows_its_messages(make_spec: MakeSpec, guarantee: int) -> None:
    refused: list[str] = []

    @batch_function(max_messages=5)
    def indexes(texts: list[str], context: Any) -> list[str]:
        try:
            context.get_message_id()
        except Exception as error:  # noqa: BLE001
            refused.append(str(error))
        ids = [context.at(index).get_message_id() for index in range(len(texts))]
        return [f"{text} {len(texts)} {id_.batch_index()}" for text, id_ in zip(texts, ids, strict=True)]

    source, sink = ListInput(IN, [MESSAGES]), ListOutput()
    async with running(make_spec(guarantee), indexes, source, sink):
        await until(lambda: len(sink.messages) == len(MESSAGES))
    sizes = [5] * 10 + [2] * 2
    assert sink.messages == [b"%s %d %d" % (m, sizes[i], i) for i, m in enumerate(MESSAGES)]
    assert "context.at(index)" in refused[0]
