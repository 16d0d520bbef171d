"""Tasks of message functions in this process: tried again, after other plans, and with entries that fail. No Spark."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from magnetar.client import AsyncClient
from magnetar.client.producers.outgoing import encode_entry
from magnetar.client.producers.producer import Producer
from magnetar.errors import OperationTimeout
from magnetar.spark.jobs.plans import Task
from magnetar.spark.jobs.range_task import SealedEntry, _RunningTask
from magnetar.spark.jobs.user_code import worker_function
from magnetar.spark.source.entry_boundaries import RowEntry
from magnetar.spark.source.options import write_options
from magnetar.spark.source.publishing import _Opened
from magnetar.spark.source.range_reader import Entry
from magnetar.spark.source.ranges import Span, TopicRange
from magnetar.spark.source.writer import RowNumbers, TaskWriter
from magnetar.wire.position import Position
from magnetar.wire.position_sequence import FIRST_SEGMENT, SequenceOverflow
from magnetar.wire.pulsar_api_pb2 import MessageMetadata

from tests.client.clusters import OurBroker
from tests.spark.task_bench import Bench, expected
from tests.spark.topics import fill

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBroker]:
    it = OurBroker(tmp_path_factory.mktemp("broker"), deduplication=True)
    yield it
    it.close()


@pytest.fixture
def bench(broker: OurBroker, tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    return Bench(broker, tmp_path, request.node.name)


def test_tasks_that_are_run_again_store_nothing_twice(bench: Bench) -> None:
    bench.fill(40)
    tasks = bench.tasks(3)
    first = [bench.run(task, is_first=True) for task in tasks]
    assert [result.failure for result in first] == [None] * 3
    assert sum(result.outputs for result in first) == 40
    again = [bench.run(task) for task in tasks]
    assert [(result.failure, result.outputs) for result in again] == [(None, 0)] * 3
    assert sum(result.duplicates for result in again) == 40
    assert bench.outputs() == expected(40)


def test_a_plan_that_cuts_anew_what_was_published_is_refused(bench: Bench) -> None:
    """A state store that was lost or restored: without the plan, entries would be dropped that nobody has stored."""
    bench.fill(40)
    lost = bench.tasks(2)[1]
    assert bench.run(lost, is_first=True).failure is None
    results = [bench.run(task, is_first=True) for task in bench.tasks(4)]
    [failure] = [result.failure for result in results if result.failure is not None]
    assert not failure.is_user_error
    assert "which is not in any plan: the state store is older than the topics" in failure.text
    assert "functions reset-cursor" in failure.text


def test_partitions_that_are_added_to_the_output_between_two_attempts_change_nothing(
    broker: OurBroker, bench: Bench
) -> None:
    broker.create_partitioned(bench.output, 2)
    bench.fill(30)
    [one, other] = bench.tasks(2)
    assert bench.run(one, outputs=2).failure is None
    broker.add_partitions(bench.output, 5)
    assert [bench.run(task, outputs=2).failure for task in (one, other)] == [None, None]
    assert bench.outputs() == expected(30)


@pytest.mark.parametrize(
    ("code", "suffixes"),
    [
        ("def process(value):\n    yield f'{value}a'\n    yield f'{value}b'\n", [b"a", b"b"]),
        ("from magnetar import batch_function\n@batch_function\n"
         "def process(values):\n    return [f'{value}a' for value in values]\n", [b"a"]),
    ],
)  # fmt: skip
def test_generators_and_batch_functions_give_their_outputs_once(
    broker: OurBroker, tmp_path: Path, code: str, suffixes: list[bytes]
) -> None:
    bench = Bench(broker, tmp_path, f"kind-{len(suffixes)}", code)
    bench.fill(20)
    for task in bench.tasks(2):
        assert [bench.run(task).failure for _ in range(2)] == [None, None]
    assert bench.outputs() == Counter(b"%d%s" % (number, suffix) for number in range(20) for suffix in suffixes)


def test_an_async_function_is_refused(broker: OurBroker, tmp_path: Path) -> None:
    bench = Bench(broker, tmp_path, "async", "async def process(value): return value\n")
    bench.fill(1)
    failure = bench.run(bench.tasks(1)[0]).failure
    assert failure is not None
    assert "a function with runtimeEnv spark cannot be an async def function: make it a plain function" in failure.text


FLAKY = """
from pathlib import Path

def process(value, context):
    directory = Path(context.get_user_config_value("directory"))
    if (directory / f"no {value}").exists():
        raise ValueError(f"not now: {value}")
    return f"{value}!" + ("x" * 3_000_000 if int(value) % 5 == 0 else "")
"""


@pytest.mark.parametrize("seed", range(3))
def test_tasks_that_fail_anywhere_and_are_run_until_they_end_store_each_output_once(
    broker: OurBroker, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    bench = Bench(broker, tmp_path, f"flaky-{seed}", FLAKY, {"directory": str(tmp_path)})
    broker.create_partitioned(bench.output, 3)
    number, entries = 0, []
    for _ in range(12):
        size = chance.choice([1, 1, 4, 9])
        entries.append([b"%d" % value for value in range(number, number + size)])
        number += size
    fill(broker.service_url, bench.input, entries)
    left = list(bench.tasks(3))
    bad = [tmp_path / f"no {chance.randrange(number)}" for _ in range(4)]
    for flag in bad:
        flag.touch()
    for _ in range(len(bad) + 1):
        chance.shuffle(left)
        left = [task for task in left if bench.run(task, outputs=3).failure is not None]
        if bad:
            bad.pop().unlink(missing_ok=True)
    assert left == []
    stored = Counter(value.rstrip(b"x") for value in bench.outputs().elements())
    assert stored == expected(number)


def test_a_position_that_fits_no_number_is_told(bench: Bench) -> None:
    task = Task(0, TopicRange(bench.input, (Span(1 << 33, 0, 0),)))
    running = _RunningTask(worker_function(bench.shipment, bench.directory), task, 0, is_first=True)
    entry = Entry(Position(1 << 33, 0), MessageMetadata(num_messages_in_batch=1), encode_entry([b"x"]).body)
    with pytest.raises(SequenceOverflow, match="ledger id 8589934592 of the input exceeds 8589934591"):
        list(running._outputs_of(entry))


class Broken:
    """A producer all of whose pending entries have just failed; it would take others."""

    def __init__(self) -> None:
        self.sent: list[asyncio.Future[Any]] = []

    async def ready(self) -> None:
        return None

    def send_sealed(self, *_: object) -> asyncio.Future[Any]:
        self.sent.append(asyncio.get_running_loop().create_future())
        return self.sent[-1]

    def send_entry(self, _: object) -> asyncio.Future[Any]:
        return self.send_sealed()

    def fail(self) -> None:
        for future in self.sent:
            future.set_exception(OperationTimeout("not stored in time"))

    async def flush(self) -> None:
        return None  # nothing is pending


def test_nothing_is_sent_behind_an_entry_that_has_just_failed(bench: Bench) -> None:
    """What is stored behind a gap makes the broker drop the gap's entries when they come again."""
    bench.fill(1)
    [task] = bench.tasks(1)
    running = _RunningTask(worker_function(bench.shipment, bench.directory), task, 0, is_first=False)
    options = write_options({"service.url": bench.broker.service_url, "topic": bench.output}, "run")
    writer = TaskWriter(options, 0, "run-0", RowNumbers())

    async def send_two(send: Callable[[int], Any], stopped: Callable[[], Any], broken: Broken) -> None:
        await send(1)
        broken.fail()
        # In the same turn of the loop: nobody has been called back yet.
        with pytest.raises(OperationTimeout):
            await send(2)
        assert len(broken.sent) == 1
        with pytest.raises(OperationTimeout):
            stopped()

    for sender in (running, writer):
        broken = Broken()
        publisher = running._publisher if sender is running else writer.publisher
        publisher._opened[bench.output] = _Opened(cast(Producer, broken), FIRST_SEGMENT)

        async def send(number: int, sender: Any = sender) -> None:
            if sender is running:
                await sender._send(cast(AsyncClient, None), SealedEntry(bench.output, FIRST_SEGMENT, number, 1, b""))
            else:
                await sender._send(cast(AsyncClient, None), bench.output, RowEntry(number, [b""], None))

        asyncio.run(send_two(send, publisher.check, broken))
