"""The run-time limit of a message: by a clock that the test moves, and with functions of each kind in processes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.instance.run_time_limit import LOOKS, RunTimeLimit
from magnetar.runtime.process.runtime import ProcessRuntime

from tests.support.eventually import until
from tests.support.instances import MakeSpec

LIMIT_S = 2.0


class Line:
    """A function's thread: calls one after the other, each of which takes a given time, and pauses between them."""

    def __init__(self, times: list[tuple[float, float]]) -> None:
        self.now_s = 0.0
        self.spans: list[tuple[float, float]] = []
        end = 0.0
        for pause, takes in times:
            self.spans.append((end + pause, end + pause + takes))
            end += pause + takes
        self.end_s = end

    def at(self) -> object | None:
        return next((number for number, (begin, end) in enumerate(self.spans) if begin <= self.now_s < end), None)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 5)), max_size=12))
def test_a_call_is_ended_soon_after_its_limit_and_never_before(times: list[tuple[float, float]]) -> None:
    line = Line(times)
    reasons: list[str] = []
    limit = RunTimeLimit(LIMIT_S, line, lambda: None, reasons.append, lambda: line.now_s)
    while line.now_s <= line.end_s and not limit.look():
        line.now_s += limit.period_s
    over = [begin for begin, end in line.spans if end - begin >= LIMIT_S + 2 * limit.period_s]
    if reasons:
        begin, _ = next((begin, end) for begin, end in line.spans if begin <= line.now_s < end)
        assert LIMIT_S <= line.now_s - begin <= LIMIT_S + 2 * limit.period_s
        assert not over or begin <= over[0]
    else:
        assert not over


def test_time_in_which_nobody_could_look_does_not_count() -> None:
    line = Line([(0.0, 1e6)])
    reasons: list[str] = []
    limit = RunTimeLimit(LIMIT_S, line, lambda: None, reasons.append, lambda: line.now_s)
    assert not limit.look()
    for _ in range(LOOKS // 2 - 1):
        line.now_s += 1000.0  # the machine was suspended
        assert not limit.look()
    line.now_s += 1000.0
    assert limit.look()
    assert "its limit of 2 s (runTimeLimitMs)" in reasons[0]


KINDS = {
    "plain": "import time\ndef process(text):\n    if text == 'slow': time.sleep(60)\n    return text",
    "with a context": (
        "import time\ndef process(text, context):\n    if text == 'slow': time.sleep(60)\n    return text"
    ),
    "generator": "import time\ndef process(text):\n    if text == 'slow': time.sleep(60)\n    yield text",
    "batch": (
        "import time\nfrom magnetar import batch_function\n@batch_function\n"
        "def process(texts):\n    if 'slow' in texts: time.sleep(60)\n    return texts"
    ),
    "async that holds up its loop": (
        "import time\nasync def process(text):\n    if text == 'slow': time.sleep(60)\n    return text"
    ),
}
OPTIONS = json.dumps({"runTimeLimitMs": 1000})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_function_that_takes_too_long_ends_with_the_line(
    client: AsyncClient, make_spec: MakeSpec, kind: str
) -> None:
    spec = make_spec(KINDS[kind], customRuntimeOptions=OPTIONS)
    (topic,) = spec.details.source.inputSpecs
    outputs = await client.subscribe(spec.details.sink.topic, "t", ConsumerConfig(initial_position="Earliest"))
    runtime = ProcessRuntime()
    try:
        instance = await runtime.start(spec)
        producer = await client.create_producer(topic)
        await producer.send(b"quick")
        assert (await outputs.receive(30)).data == b"quick"
        await producer.send(b"slow")
        reason = await instance.wait()
        assert "its limit of 1 s (runTimeLimitMs); now at line " in reason
        assert "user_code.py" in reason
    finally:
        await runtime.close()


async def test_an_async_call_that_takes_too_long_fails_alone(client: AsyncClient, make_spec: MakeSpec) -> None:
    code = "import asyncio\nasync def process(text):\n    if text == 'slow': await asyncio.sleep(60)\n    return text"
    spec = make_spec(code, customRuntimeOptions=OPTIONS)
    (topic,) = spec.details.source.inputSpecs
    outputs = await client.subscribe(spec.details.sink.topic, "t", ConsumerConfig(initial_position="Earliest"))
    runtime = ProcessRuntime()
    try:
        instance = await runtime.start(spec)
        producer = await client.create_producer(topic)
        await producer.send(b"slow")

        async def has_failed() -> bool:
            status = await instance.status()
            latest = [one.exceptionString for one in status.latestUserExceptions]
            return any("exceeded its limit of 1 s (runTimeLimitMs)" in one for one in latest)

        await until(has_failed)
        await producer.send(b"quick")
        assert (await outputs.receive(30)).data == b"quick"
    finally:
        await runtime.close()
