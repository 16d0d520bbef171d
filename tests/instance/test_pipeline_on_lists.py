"""The pipeline with every settlement on an input and an output that are plain lists: without any broker."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.consumers.consumer import Consumer
from magnetar.client.consumers.received import ReceivedEntry
from magnetar.client.producers.producer import Producer
from magnetar.instance.logs.file import InstanceLog
from magnetar.instance.pipeline import Pipeline
from magnetar.instance.ports import Endpoints, Input, NumberedOutput, OrderedInput, Output
from magnetar.instance.spec import InstanceSpec
from magnetar.state.client import TableClient
from magnetar.wire import functions_pb2 as records

from tests.instance.lists import FunctionHome, ListInput, ListOutput, Lists
from tests.instance.stateful import counters
from tests.support.instances import spec_maker

NO_BROKER = "pulsar://127.0.0.1:1"
IN, OUT = "persistent://public/default/in", "persistent://public/default/out"
BATCHES = [[b"m%d" % (3 * number + index) for index in range(3)] for number in range(4)]
MESSAGES = [payload for batch in BATCHES for payload in batch]
EVERYTHING = [(number, index) for number in range(4) for index in range(3)]


def are_ports(client: AsyncClient, consumer: Consumer, producer: Producer) -> tuple[object, ...]:
    """A topic's ends have the ports as they are (for the type checker)."""
    ends: tuple[Endpoints, Input, OrderedInput, Output, NumberedOutput]
    ends = (client, consumer, consumer, producer, producer)
    return ends


@pytest.fixture
def make_spec(tmp_path: Path) -> Callable[..., InstanceSpec]:
    def make(guarantee: int, state_url: str = "", name: str = "f") -> InstanceSpec:
        spec = spec_maker(NO_BROKER, tmp_path, "persistent://public/default/")(
            name=name, processingGuarantees=guarantee, sink=records.SinkSpec(topic=OUT)
        )
        spec.details.source.inputSpecs.clear()
        spec.details.source.inputSpecs[IN].SetInParent()
        spec.details.sink.producerSpec.compressionType = records.CompressionType.NONE
        if guarantee == records.EFFECTIVELY_ONCE:
            spec.details.source.subscriptionType = records.FAILOVER
        return replace(spec, state_url=state_url)

    return make


MakeSpec = Callable[..., InstanceSpec]


@asynccontextmanager
async def running(
    spec: InstanceSpec, function: Callable[..., Any], source: ListInput, sink: ListOutput
) -> AsyncIterator[Pipeline]:
    """Run an instance; when it is stopped it has no reason to end."""
    log = InstanceLog(spec.log_file)
    async with AsyncClient(NO_BROKER) as client:
        pipeline = Pipeline(spec, client, FunctionHome(function), log, Lists(source, sink))
        run = asyncio.ensure_future(pipeline.run())
        try:
            yield pipeline
        finally:
            pipeline.stop(10)
            assert await run == ""
            log.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def shout(text: str) -> str:
    return text + "!"


@pytest.mark.parametrize(
    "guarantee", [records.ATLEAST_ONCE, records.ATMOST_ONCE, records.MANUAL, records.EFFECTIVELY_ONCE]
)
async def test_outputs_follow_the_input_in_order(make_spec: MakeSpec, guarantee: int) -> None:
    source, sink = ListInput(IN, BATCHES), ListOutput()
    async with running(make_spec(guarantee), shout, source, sink) as pipeline:
        await until(lambda: len(sink.messages) == len(MESSAGES))
    assert sink.messages == [payload + b"!" for payload in MESSAGES]
    assert pipeline.stats.total.processed == len(MESSAGES)
    if guarantee == records.EFFECTIVELY_ONCE:
        assert (source.mark_delete, source.acknowledged) == (3, [])
    else:
        assert source.acknowledged == ([] if guarantee == records.MANUAL else EVERYTHING)


@pytest.mark.parametrize("guarantee", [records.ATLEAST_ONCE, records.ATMOST_ONCE, records.EFFECTIVELY_ONCE])
async def test_input_is_acknowledged_after_its_outputs_are_durable_or_before_it_is_processed(
    make_spec: MakeSpec, guarantee: int
) -> None:
    source, sink = ListInput(IN, BATCHES), ListOutput()
    sink.holds_back = True
    async with running(make_spec(guarantee), shout, source, sink) as pipeline:
        await until(lambda: pipeline.stats.total.processed == len(MESSAGES))
        await asyncio.sleep(0.05)
        assert source.acknowledged == (EVERYTHING if guarantee == records.ATMOST_ONCE else [])
        assert source.mark_delete == -1
        sink.release()
        await until(lambda: all(map(source.is_done, range(4))))


async def test_a_function_acknowledges_its_input_itself(make_spec: MakeSpec) -> None:
    def process(text: str, context: Any) -> str:
        if int(text[1:]) % 2:
            context.ack(context.get_message_id(), context.get_current_message_topic_name())
        return text

    source, sink = ListInput(IN, BATCHES), ListOutput()
    async with running(make_spec(records.MANUAL), process, source, sink):
        await until(lambda: len(sink.messages) == len(MESSAGES))
    assert source.acknowledged == [(number, index) for number, index in EVERYTHING if (3 * number + index) % 2]


@pytest.mark.parametrize("guarantee", [records.ATLEAST_ONCE, records.ATMOST_ONCE])
async def test_a_message_that_fails_comes_again_or_is_lost(make_spec: MakeSpec, guarantee: int) -> None:
    failed: list[str] = []

    def fail_once(text: str) -> str:
        if text == "m4" and not failed:
            failed.append(text)
            raise ValueError(text)
        return text

    source, sink = ListInput(IN, BATCHES), ListOutput()
    is_repeated = guarantee == records.ATLEAST_ONCE
    async with running(make_spec(guarantee), fail_once, source, sink) as pipeline:
        await until(lambda: all(map(source.is_done, range(4))) and len(sink.messages) >= 11 + is_repeated)
    assert sorted(int(message[1:]) for message in sink.messages) == [
        number for number in range(12) if number != 4 or is_repeated
    ]
    assert pipeline.stats.total.user_exceptions == 1


async def test_what_waits_to_be_tried_again_is_not_held_in_memory(make_spec: MakeSpec) -> None:
    spec = make_spec(records.ATLEAST_ONCE)
    spec.details.retryDetails.maxMessageRetries = 1
    spec.details.source.negativeAckRedeliveryDelayMs = 600_000

    def fail(text: str) -> str:
        raise ValueError(text[:1])

    def bytes_of_entries() -> int:
        gc.collect()
        entries = [found for found in gc.get_objects() if isinstance(found, ReceivedEntry)]
        return sum(len(payload) for entry in entries for payload in (entry._payload, *(entry._payloads or ())))

    source, sink = ListInput(IN, [[b"x" * 100_000] for _ in range(20)]), ListOutput()
    async with running(spec, fail, source, sink) as pipeline:
        await until(lambda: pipeline.stats.total.user_exceptions == 20)
        await until(lambda: bytes_of_entries() < 200_000)


async def test_an_instance_that_begins_again_sends_nothing_twice(make_spec: MakeSpec) -> None:
    """Effectively once, directly: the acknowledgements of the first instance are lost, its outputs are not."""
    source, sink = ListInput(IN, BATCHES), ListOutput()
    async with running(make_spec(records.EFFECTIVELY_ONCE), shout, source, sink):
        await until(lambda: len(sink.messages) == len(MESSAGES))
    source.mark_delete = -1
    source.entries.append([b"m12"])
    again = source.begin_again()
    async with running(make_spec(records.EFFECTIVELY_ONCE), shout, again, sink):
        await until(lambda: again.mark_delete == 4)
    assert sink.messages == [payload + b"!" for payload in [*MESSAGES, b"m12"]]


async def test_state_and_outputs_are_there_once_through_the_outbox(
    make_spec: MakeSpec, state_url: str, tables: TableClient
) -> None:
    """The first instance ends between its commits and its outputs; the second one sends what was committed."""

    def count(text: str, context: Any) -> str:
        context.incr_counter("messages", 1)
        return text

    source, sink = ListInput(IN, BATCHES), ListOutput()
    sink.holds_back = True
    spec = make_spec(records.EFFECTIVELY_ONCE, state_url, "outbox")

    async def counted(number: int) -> None:
        while counters(tables, spec.function_name, ["messages"]) != {"messages": number}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async with running(spec, count, source, sink):
        await asyncio.wait_for(counted(len(MESSAGES)), 30)
    assert (sink.messages, source.mark_delete) == ([], -1)
    source.entries.append([b"m12"])
    again, sink.holds_back = source.begin_again(), False
    async with running(spec, count, again, sink):
        await until(lambda: again.mark_delete == 4)
    assert sink.messages == [*MESSAGES, b"m12"]
    await asyncio.wait_for(counted(13), 30)
