"""Tasks over the 2^20th entry of a ledger: their outputs are numbered anew under another name. No Spark."""

from __future__ import annotations

import asyncio
import pickle
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.client import AsyncClient, ProducerConfig
from magnetar.client.producers.outgoing import encode_entry, seal_entry
from magnetar.client.producers.producer import Producer
from magnetar.instance.identity import producer_name
from magnetar.spark.jobs.plans import Task
from magnetar.spark.jobs.range_task import _RunningTask
from magnetar.spark.jobs.user_code import worker_function
from magnetar.spark.source.options import ReadOptions
from magnetar.spark.source.range_reader import Entry, RangeReader
from magnetar.spark.source.ranges import Span, TopicRange, split
from magnetar.wire.payload import open_payload
from magnetar.wire.position import Position
from magnetar.wire.position_sequence import ENTRY_MAX, LEDGER_MAX
from magnetar.wire.pulsar_api_pb2 import MessageMetadata

from tests.instance.shifting_proxy import ShiftingProxy
from tests.spark.conftest import LEDGER_ENTRIES, BadNetwork, SmallLedgers, bad_network
from tests.spark.task_bench import Bench, expected
from tests.spark.topics import numbered, options_for, planned, values
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

BEFORE = 5
"""Entries of each ledger before the 2^20th."""
SHIFT = ENTRY_MAX + 1 - BEFORE
COUNT = 3 * LEDGER_ENTRIES + 7


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallLedgers]:
    it = SmallLedgers(tmp_path_factory.mktemp("broker"), deduplication=True)
    yield it
    it.close()


@pytest.fixture(scope="module")
def network(broker: SmallLedgers) -> Iterator[BadNetwork]:
    """To a broker whose consumers see all entries behind 2^20 - `BEFORE`."""
    with bad_network(ShiftingProxy(broker.service_url, SHIFT)) as network:
        yield network


class LongLedgers(Bench):
    """A function whose input is in ledgers of more than 2^20 entries, of which the first are gone."""

    def whole(self) -> TopicRange:
        [there] = planned(options_for(self.broker.service_url, self.input))
        spans = (Span(ledger, first + SHIFT, last + SHIFT) for ledger, first, last in there.spans)
        return TopicRange(self.input, tuple(spans))

    def tasks(self, count: int) -> tuple[Task, ...]:
        return tuple(Task(slot, wanted) for slot, wanted in enumerate(split(self.whole(), count)))

    def stored(self) -> list[tuple[str, int]]:
        """Return names of producers and sequence ids of the output's entries, in order."""
        url = self.broker.service_url
        [wanted] = planned(options_for(url, self.output))
        reader = RangeReader(wanted, ReadOptions(service_url=url, poll_timeout_ms=10_000))
        return [(entry.metadata.producer_name, entry.metadata.sequence_id) for entry in reader.entries()]

    def numbers(self, task: Task) -> list[tuple[str, int]]:
        """Return what `stored` is to be of a task."""
        name = f"{producer_name(self.spec, self.input)}/{task.slot}"
        entries = [(span.ledger_id, entry) for span in task.wanted.spans for entry in range(span.first, span.last + 1)]
        return [
            (f"~1/{name}", ledger << 30 | (entry - 2**20) << 10)
            if entry >= 2**20
            else (name, ledger << 30 | entry << 10)
            for ledger, entry in entries
        ]


class Make(NamedTuple):
    broker: SmallLedgers
    network: BadNetwork
    directory: Path
    name: str

    def bench(self, code: str) -> LongLedgers:
        config = {"directory": str(self.directory)}
        return LongLedgers(self.broker, self.directory, self.name, code, config, service_url=self.network.service_url)


@pytest.fixture
def make(broker: SmallLedgers, network: BadNetwork, tmp_path: Path, request: pytest.FixtureRequest) -> Make:
    return Make(broker, network, tmp_path, request.node.name)


@pytest.fixture
def bench(make: Make) -> LongLedgers:
    return make.bench("def process(value):\n    return str(value) + '!'\n")


# -- the mapping ----------------------------------------------------------------------------------------------------

long_positions = st.builds(
    Position, st.integers(0, LEDGER_MAX), st.integers(0, 2**40) | st.integers(2**20 - 3, 2**20 + 3)
)


@pytest.fixture(scope="module")
def shouting(broker: SmallLedgers, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(broker, tmp_path_factory.mktemp("shouting"), "shouting")


@given(long_positions, long_positions, st.integers(0, 3))
def test_a_position_has_one_name_and_number_in_all_attempts_and_ranges(
    shouting: Bench, one: Position, other: Position, slot: int
) -> None:
    start, end = min(one, other), max(one, other)

    def made(position: Position, *spans: Span, is_first: bool) -> tuple[str, int]:
        task = Task(slot, TopicRange(shouting.input, spans))
        running = _RunningTask(worker_function(shouting.shipment, shouting.directory), task, 0, is_first=is_first)
        entry = Entry(position, MessageMetadata(num_messages_in_batch=1), encode_entry([b"x"]).body)
        [sealed] = running._outputs_of(entry)
        metadata, _ = open_payload(sealed.payload)
        name = f"{producer_name(shouting.spec, shouting.input)}/{slot}"
        assert metadata.producer_name == sealed.segment.producer_name(name)
        assert metadata.sequence_id == sealed.sequence
        return metadata.producer_name, metadata.sequence_id

    both = Span(start.ledger_id, start.entry_id, start.entry_id), Span(end.ledger_id, end.entry_id, end.entry_id)
    first, last = made(start, *both, is_first=True), made(end, *both, is_first=True)
    assert made(start, both[0], is_first=False) == first
    assert made(end, both[1], is_first=False) == last
    assert (first == last) == (start == end)
    if first[0] == last[0]:
        assert (first[1] < last[1]) == (start < end)
    if start.entry_id < 2**20:  # as it always was
        name = f"{producer_name(shouting.spec, shouting.input)}/{slot}"
        assert first == (name, start.ledger_id << 30 | start.entry_id << 10)


# -- tasks ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 4])
def test_ranges_over_ends_of_segments_store_each_output_once_and_in_order(bench: LongLedgers, count: int) -> None:
    bench.fill(COUNT)
    tasks = bench.tasks(count)
    first = [bench.run(task, is_first=True) for task in tasks]
    assert [(result.failure, result.duplicates) for result in first] == [(None, 0)] * count
    assert values(options_for(bench.broker.service_url, bench.output)) == [value + b"!" for value in numbered(COUNT)]
    assert bench.stored() == [number for task in tasks for number in bench.numbers(task)]
    assert {name.partition("/")[0] for name, _ in bench.stored()} == {"public", "~1"}
    again = [bench.run(task) for task in tasks]
    assert [(result.failure, result.outputs) for result in again] == [(None, 0)] * count
    assert sum(result.duplicates for result in again) == COUNT
    assert len(bench.stored()) == COUNT


FLAKY = """
from pathlib import Path

def process(value, context):
    directory = Path(context.get_user_config_value("directory"))
    if (directory / f"no {value}").exists():
        raise ValueError(f"not now: {value}")
    return f"{value}!" + ("x" * 3_000_000 if int(value) % 10 == 4 else "")
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_tasks_that_fail_anywhere_and_lose_connections_store_each_output_once(make: Make, seed: int) -> None:
    chance = random.Random(seed)
    bench = make.bench(FLAKY)
    outputs = chance.choice([0, 2])
    if outputs:
        make.broker.create_partitioned(bench.output, outputs)
    bench.fill(COUNT)
    left = list(bench.tasks(chance.choice([1, 3])))
    bad = [make.directory / f"no {number}" for number in chance.sample(range(COUNT), 4)]
    for flag in bad:
        flag.touch()
    for _ in range(len(bad) + 1):
        chance.shuffle(left)
        for task in list(left):
            make.network.cut_after_sends(chance.randrange(COUNT))
            result = bench.run(task, outputs=outputs)
            if result.failure is None:
                left.remove(task)
            else:
                assert "not now" in result.failure.text
        if bad:
            bad.pop().unlink()
    assert left == []
    assert sorted(int(value.rstrip(b"x")[:-1]) for value in bench.outputs().elements()) == list(range(COUNT))


STOPPING = """
import threading
from pathlib import Path

def process(value, context):
    if (Path(context.get_user_config_value("directory")) / f"stop {value}").exists():
        threading.Event().wait()
    return f"{value}!"
"""
ATTEMPT = """
import pickle, sys
from magnetar.spark.jobs import range_task
range_task.PIECE_BYTES = 1
print(range_task.run_task(*pickle.load(sys.stdin.buffer)))
"""
"""Sends each output as soon as it is made."""


@pytest.mark.slow
def test_tasks_that_are_killed_around_the_end_of_a_segment_store_each_output_once(make: Make) -> None:
    bench = make.bench(STOPPING)
    bench.fill(COUNT)
    [task] = bench.tasks(1)
    work = pickle.dumps((bench.shipment, task, make.directory))
    for done in (BEFORE - 1, BEFORE, BEFORE + 1, LEDGER_ENTRIES + BEFORE + 2):
        (flag := make.directory / f"stop {done}").touch()

        def is_there(count: int = done) -> bool:
            return bench.outputs().total() >= count

        with subprocess.Popen([sys.executable, "-c", ATTEMPT], stdin=subprocess.PIPE) as attempt:
            assert attempt.stdin is not None
            attempt.stdin.write(work)
            attempt.stdin.close()
            try:
                wait_for(is_there, f"{done} outputs")
            finally:
                attempt.kill()
        flag.unlink()
        assert bench.outputs() == expected(done)
    result = bench.run(task)
    assert (result.failure, result.outputs, result.duplicates) == (None, COUNT - done, done)
    assert values(options_for(make.broker.service_url, bench.output)) == [value + b"!" for value in numbered(COUNT)]
    assert bench.stored() == bench.numbers(task)


@pytest.mark.slow
def test_what_an_earlier_version_has_stored_of_a_plan_is_not_stored_again(bench: LongLedgers) -> None:
    """It failed at the 2^20th entry; what it had stored before has the names and numbers that there always were."""
    bench.fill(LEDGER_ENTRIES)
    [task] = bench.tasks(1)
    name = f"{producer_name(bench.spec, bench.input)}/{task.slot}"
    ledger_id = task.wanted.start.ledger_id

    async def publish() -> None:
        async with AsyncClient(bench.broker.service_url) as client:
            producer = await client.create_producer(bench.output, ProducerConfig(name=name))
            assert isinstance(producer, Producer)
            for number in range(BEFORE):
                sequence = ledger_id << 30 | (SHIFT + number) << 10
                payload = seal_entry(encode_entry([b"%d!" % number]), name, sequence, time.time_ns() // 1_000_000)
                await producer.send_sealed(payload, sequence, 1)
            await producer.close()

    asyncio.run(publish())
    result = bench.run(task)
    assert (result.failure, result.outputs, result.duplicates) == (None, LEDGER_ENTRIES - BEFORE, BEFORE)
    assert bench.outputs() == expected(LEDGER_ENTRIES)


def test_a_plan_that_cuts_anew_what_was_published_behind_the_first_segment_is_refused(bench: LongLedgers) -> None:
    bench.fill(LEDGER_ENTRIES)
    [whole] = bench.tasks(1)
    [(ledger_id, first, _)] = whole.wanted.spans

    def run(begin: int, end: int) -> str:
        task = Task(0, TopicRange(bench.input, (Span(ledger_id, first + begin, first + end),)))
        failure = bench.run(task, is_first=True).failure
        return "" if failure is None else failure.text

    assert run(BEFORE, BEFORE + 2) == ""
    # As if nobody knew of that plan any more: from what it stored last, and from the segment before.
    for begin in (BEFORE + 2, BEFORE - 2):
        failure = run(begin, LEDGER_ENTRIES - 1)
        assert failure.startswith("producer ~1/")
        assert "which is not in any plan: the state store is older than the topics" in failure
    assert run(BEFORE + 3, LEDGER_ENTRIES - 1) == ""
