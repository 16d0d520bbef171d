"""Batch sources: discovery, tasks that instances share, and tasks of instances that die."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.config import connector_conversion as conversion
from magnetar.config.batch_source import joined, task_subscription, task_topic
from magnetar.config.connector_config import SourceConfig
from magnetar.connectors.triggers import CronTrigger
from magnetar.errors import InvalidConfig
from magnetar.instance.connectors import failed_tasks
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.interface import Runtime
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.runtime.thread.runtime import ThreadRuntime
from magnetar.wire import functions_pb2 as records

from tests.support.eventually import until
from tests.support.exact import all_messages, count
from tests.support.function_topics import backlog_of, stats_of
from tests.support.instances import MakeSpec, client, make_spec, server, topic
from tests.support.servers import Server, running

__all__ = ["client", "make_spec", "server", "topic"]

EARLIEST = ConsumerConfig(initial_position="Earliest")
SEEDS = int(os.environ.get("MAGNETAR_CONNECTOR_SEEDS", "4"))
"""Of the rounds of kills in `make test-crash`."""
CODE = """
import json, time
from magnetar.api.connector import BatchSource, Record, Retry, Trigger

class Every(Trigger):
    def open(self, config):
        self.pause_s = config["seconds"]
    def next_after(self, moment_s):
        return moment_s + self.pause_s

class Tasks(BatchSource):
    tasks, size, pause_s = 10, 200, 0.0

    def open(self, config, context):
        self.config, self.context = config, context
        self.note("open")

    def note(self, *what):
        with open(self.config["notes"], "a") as file:
            file.write(json.dumps([*what, self.context.instance_id]) + "\\n")

    def discover(self):
        self.note("discover")
        return [b"t%d" % number for number in range(self.tasks)]

    def prepare(self, task):
        self.note("prepare", task.decode())
        self.task, self.number = task.decode(), 0

    def read(self):
        if self.number >= self.size:
            return None
        time.sleep(self.pause_s)
        first, self.number = self.number, self.number + 20
        return [self.record(number) for number in range(first, self.number)]

    def record(self, number):
        return Record(f"{self.task}-{number}")
"""
IMMEDIATE = {"discoveryTriggererClassName": "org.apache.pulsar.io.batchdiscovery.ImmediateTriggerer"}


class Batches:
    """Makes specs of batch sources that are written as text."""

    def __init__(self, make_spec: MakeSpec, state_url: str, topic: str, tmp_path: Path) -> None:
        self.notes_file = tmp_path / "notes"
        self.notes_file.touch()
        self.name = topic.rpartition("/")[2]
        self._make_spec = make_spec
        self._state_url = state_url

    def spec(
        self, code: str = "", batch: dict[str, Any] | None = None, *, instance_id: int = 0, version: int = 1
    ) -> InstanceSpec:
        configs = joined({"notes": str(self.notes_file)}, batch or IMMEDIATE, "user_code.Mine")
        spec = self._make_spec(
            CODE + "\nclass Mine(Tasks):\n    pass\n" + code,
            instance_id=instance_id,
            source={"className": "user_code.Mine", "configs": json.dumps(configs)},
            componentType=records.FunctionDetails.SOURCE,
            name=self.name,
            parallelism=3,
        )
        spec.metadata.functionUuid = self.name
        spec.metadata.version = version
        return replace(spec, state_url=self._state_url)

    def notes(self, kind: str) -> list[list[Any]]:
        lines = [json.loads(line) for line in self.notes_file.read_text().splitlines()]
        return [line for line in lines if line[0] == kind]


@pytest.fixture(scope="module")
def state_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running("state-store", tmp_path_factory.mktemp("state")) as server:
        yield str(server.addresses["stateStorageServiceUrl"])


@pytest.fixture
def batches(make_spec: MakeSpec, state_url: str, topic: str, tmp_path: Path) -> Batches:
    return Batches(make_spec, state_url, topic, tmp_path)


def expected(tasks: int = 10, size: int = 200) -> list[bytes]:
    return sorted(b"t%d-%d" % (task, number) for task in range(tasks) for number in range(size))


async def arrived(client: AsyncClient, topic: str, number: int) -> None:
    async def are_there() -> bool:
        return await count(client, topic) >= number

    await until(are_there)


async def no_tasks(server: Server, batches: Batches, spec: InstanceSpec, begun: int) -> None:
    """Wait until all tasks are done, and so many were begun."""
    subscription = task_subscription(spec.details)

    async def is_empty() -> bool:
        if len(batches.notes("prepare")) < begun:
            return False
        found = (await stats_of(server, task_topic(spec.details))).get("subscriptions", {})
        return subscription in found and await backlog_of(server, task_topic(spec.details), subscription) == 0

    await until(is_empty)


async def test_instances_share_tasks_which_one_of_them_discovers_once(
    client: AsyncClient, server: Server, batches: Batches, topic: str
) -> None:
    runtime = ThreadRuntime(server.service_url)
    slow = "    pause_s = 0.01\n"
    specs = [batches.spec(slow, instance_id=number) for number in range(3)]
    instances = [await runtime.start(spec) for spec in specs]
    await arrived(client, f"{topic}-out", 2000)
    await no_tasks(server, batches, specs[0], 10)
    assert sorted(await all_messages(client, f"{topic}-out")) == expected()
    assert len({instance_id for _, _, instance_id in batches.notes("prepare")}) == 3
    for instance in instances:
        await instance.stop(10)
    again = await runtime.start(specs[0])  # as after a crash: nothing is discovered again
    updated = await runtime.start(batches.spec(slow, instance_id=1))

    async def are_open() -> bool:
        return len(batches.notes("open")) == 5

    await until(are_open)
    await again.stop(10)
    await updated.stop(10)
    assert batches.notes("discover") == [["discover", 0]]
    changed = await runtime.start(batches.spec(version=2))
    await arrived(client, f"{topic}-out", 4000)
    await changed.stop(10)
    await runtime.close()
    assert len(batches.notes("discover")) == 2


@pytest.mark.parametrize(
    ("seed", "tasks"), [(1, 10), *(pytest.param(seed, 60, marks=pytest.mark.crash) for seed in range(2, 2 + SEEDS))]
)
async def test_tasks_of_instances_that_are_killed_are_begun_anew(
    client: AsyncClient, server: Server, batches: Batches, topic: str, seed: int, tasks: int
) -> None:
    print(f"seed {seed}")
    rng, runtime = random.Random(seed), ProcessRuntime()
    code = f"    pause_s, tasks = 0.02, {tasks}\n"
    specs = [batches.spec(code, instance_id=number) for number in range(3)]
    instances = [await runtime.start(spec) for spec in specs]
    done = set(expected(tasks))
    kills = 0

    async def is_complete() -> bool:
        return set(await all_messages(client, f"{topic}-out")) >= done

    while not await is_complete():
        await asyncio.sleep(rng.uniform(0.2, 0.8))
        victim = rng.randrange(3)
        os.kill(instances[victim].process_id, signal.SIGKILL)
        await instances[victim].wait()
        spec = replace(specs[victim], control_socket=specs[victim].control_socket.with_suffix(f".{kills}"))
        instances[victim] = await runtime.start(spec)
        kills += 1
    await no_tasks(server, batches, specs[0], tasks)
    for instance in instances:
        await instance.stop(10)
    await runtime.close()
    times = Counter(await all_messages(client, f"{topic}-out"))
    assert times.keys() == done
    # An instance that is killed has one task at hand, and one whose records may not all be durable yet.
    assert len(batches.notes("prepare")) <= len(batches.notes("discover")) * tasks + 2 * kills
    assert kills > 0


async def test_task_is_begun_anew_when_the_source_is_opened_again(
    client: AsyncClient, server: Server, batches: Batches, topic: str
) -> None:
    code = """
    tasks, size, tries = 2, 60, 0
    def record(self, number):
        if number == 40 and Mine.tries < 3:
            Mine.tries += 1
            raise Retry("away")
        return super().record(number)
"""
    runtime = ThreadRuntime(server.service_url)
    spec = batches.spec(code)
    instance = await runtime.start(spec)
    await no_tasks(server, batches, spec, 5)
    await instance.stop(10)
    await runtime.close()
    assert set(await all_messages(client, f"{topic}-out")) == set(expected(2, 60))
    assert [task for _, task, _ in batches.notes("prepare")] == ["t0"] * 4 + ["t1"]


async def test_task_stays_while_its_records_are_not_durable(
    client: AsyncClient, server: Server, batches: Batches, topic: str
) -> None:
    """A task that is read to its end, but whose instance cannot store its records, is nobody's yet."""
    runtime = ThreadRuntime(server.service_url)
    code = "    tasks, size = 1, 20\n    def record(self, number):\n        return Record(b'x' * 5_200_000)\n"
    spec = batches.spec(code)
    instance = await runtime.start(spec)
    await no_tasks(server, batches, spec, 1)  # records that are too large are left out, and the task goes on
    await instance.stop(10)
    code = "    tasks = 1\n    def read(self):\n        raise ValueError('broken')\n"
    broken = await runtime.start(batches.spec(code, version=2))

    async def has_failed() -> bool:
        return any("ValueError: broken" in one.exceptionString for one in (await broken.status()).latestUserExceptions)

    await until(has_failed)
    await broken.stop(10)
    assert await backlog_of(server, task_topic(spec.details), task_subscription(spec.details)) == 1
    healed = await runtime.start(batches.spec("    tasks = 1\n", version=2))
    await no_tasks(server, batches, spec, 3)
    await healed.stop(10)
    await runtime.close()
    assert sorted(await all_messages(client, f"{topic}-out")) == expected(1)


FAILING_READS = {
    "raises": ("raise ValueError('bad task')", "ValueError: bad task"),
    "exits": ("raise SystemExit('bad task')", "SystemExit: bad task"),
    "returns what is no record": ("return 'text'", "read returned a value of type str"),
}


def failing(batches: Batches, statement: str) -> InstanceSpec:
    code = f"    tasks, size = 5, 20\n    def read(self):\n        if self.task == 't1': {statement}\n"
    return batches.spec(code + "        return super().read()\n")


@asynccontextmanager
async def kept_running(runtime: Runtime, spec: InstanceSpec) -> AsyncIterator[None]:
    """Start an instance again whenever it has ended, as a supervisor does."""
    ended = asyncio.Event()

    async def run() -> None:
        death = ""
        while not ended.is_set():
            instance = await runtime.start(replace(spec, died_of=death))
            waits = [asyncio.create_task(ended.wait()), asyncio.create_task(instance.wait())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            await instance.stop(10)
            await waits[1]
            death = instance.death()

    running_task = asyncio.create_task(run())
    yield
    ended.set()
    await running_task
    await runtime.close()


def others() -> set[bytes]:
    return {one for one in expected(5, 20) if not one.startswith(b"t1-")}


@pytest.mark.parametrize("kind", FAILING_READS)
async def test_task_that_cannot_be_read_delays_no_other_and_becomes_a_letter(
    client: AsyncClient, server: Server, batches: Batches, topic: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement, reason = FAILING_READS[kind]
    spec = failing(batches, statement)
    monkeypatch.setattr(failed_tasks, "FIRST_PAUSE_S", 0.1)
    monkeypatch.setattr(failed_tasks, "PAUSE_FACTOR", 1)
    letters = await client.subscribe(f"{topic}-out-{batches.name}-DLQ", "test", EARLIEST)
    async with kept_running(ThreadRuntime(server.service_url), spec):
        letter = await letters.receive(60)
        await no_tasks(server, batches, spec, 4 + failed_tasks.TASK_TRIES)
    assert letter.data == b"t1"
    assert reason in letter.properties["EXCEPTION"]
    assert letter.properties["TRIES"] == str(failed_tasks.TASK_TRIES)
    begun = [task for _, task, _ in batches.notes("prepare")]
    assert begun.count("t1") == failed_tasks.TASK_TRIES
    assert set(await all_messages(client, f"{topic}-out")) == others()


async def test_task_that_ends_the_process_delays_no_other(
    client: AsyncClient, server: Server, batches: Batches, topic: str
) -> None:
    spec = failing(batches, "import os; os._exit(7)")

    async def are_told() -> bool:
        text = spec.log_file.read_text()
        return all(f"failed in attempt {number} of 6, retrying in" in text for number in (1, 2))

    async def are_done() -> bool:
        return set(await all_messages(client, f"{topic}-out")) == others()

    async with kept_running(ProcessRuntime(), spec):
        await until(are_done)
        await until(are_told)
    assert "the process exited with exit code 7" in spec.log_file.read_text()


@pytest.mark.parametrize(
    "trigger",
    [
        {
            "discoveryTriggererClassName": "org.apache.pulsar.io.batchdiscovery.CronTriggerer",
            "discoveryTriggererConfig": {"__CRON__": "* * * * * ?"},
        },
        {"discoveryTriggererClassName": "user_code.Every", "discoveryTriggererConfig": {"seconds": 0.3}},
    ],
    ids=["cron", "own"],
)
async def test_tasks_are_discovered_again_and_again(server: Server, batches: Batches, trigger: dict[str, Any]) -> None:
    runtime = ThreadRuntime(server.service_url)
    instance = await runtime.start(batches.spec("    tasks = 2\n    size = 20\n", trigger))

    async def has_prepared() -> bool:
        return len(batches.notes("prepare")) >= 6

    await until(has_prepared)
    await instance.stop(10)
    await runtime.close()
    assert len(batches.notes("discover")) >= 3


async def test_asynchronous_batch_source(client: AsyncClient, server: Server, batches: Batches, topic: str) -> None:
    code = """
    async def discover(self):
        return [b"t0"]
    async def prepare(self, task):
        self.left = [Record("a"), Record("b")]
    async def read(self):
        return self.left.pop() if self.left else None
"""
    runtime = ThreadRuntime(server.service_url)
    instance = await runtime.start(batches.spec(code))
    await arrived(client, f"{topic}-out", 2)
    await instance.stop(10)
    await runtime.close()
    assert await all_messages(client, f"{topic}-out") == [b"b", b"a"]


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        ({"discoveryTriggererClassName": "user_code.Nothing"}, "has no 'Nothing'"),
        ({"discoveryTriggererClassName": "user_code.Tasks"}, "user_code.Tasks is not a subclass of Trigger"),
        (
            {"discoveryTriggererClassName": "cron", "discoveryTriggererConfig": {"__CRON__": "x"}},
            "invalid __CRON__ 'x': expected minute",
        ),
    ],
)
async def test_bad_triggers_end_the_instance(
    server: Server, batches: Batches, batch: dict[str, Any], error: str
) -> None:
    runtime = ThreadRuntime(server.service_url)
    instance = await runtime.start(batches.spec("", batch))
    assert error in await instance.wait()
    await runtime.close()


def source_config(**fields: object) -> SourceConfig:
    names = {"tenant": "public", "namespace": "default", "name": "s", "topicName": "t", "className": "m.C"}
    return conversion.read_source_config(names | fields)


def test_record_keeps_the_config_as_pulsar_does() -> None:
    batch = {"discoveryTriggererClassName": "cron", "discoveryTriggererConfig": {"__CRON__": "0 * * * * *"}}
    config = source_config(configs={"a": 1}, batchSourceConfig=batch, parallelism=1)
    details = conversion.to_details(config)
    configs = json.loads(details.source.configs)
    assert configs["__BATCHSOURCECLASSNAME__"] == "m.C"
    assert json.loads(configs["__BATCHSOURCECONFIGS__"]) == batch
    shown = conversion.to_json(details)
    assert shown["configs"] == {"a": 1}
    assert shown["batchSourceConfig"] == batch


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        ({}, "BatchSourceConfig does not specify Discovery Trigger ClassName"),
        ({"discoveryTriggererClassName": "sometimes"}, "immediate, cron, or module.Class of a Trigger"),
        ({"discoveryTriggererClassName": "cron", "every": 1}, "batchSourceConfig: unknown field 'every'"),
        ({"discoveryTriggererClassName": "cron", "discoveryTriggererConfig": 1}, "must be a JSON object"),
    ],
)
def test_bad_batch_configs_are_refused(batch: dict[str, object], error: str) -> None:
    with pytest.raises(InvalidConfig, match=error):
        conversion.check_source(source_config(batchSourceConfig=batch))


def test_update_neither_makes_a_batch_source_nor_changes_its_trigger() -> None:
    plain, batch = source_config(), source_config(batchSourceConfig=IMMEDIATE)
    for before, after in ((plain, batch), (batch, source_config(batchSourceConfig={}))):
        with pytest.raises(InvalidConfig, match="Sources cannot be update between regular sources and batchsource"):
            conversion.merge(before, after)
    cron = source_config(batchSourceConfig={"discoveryTriggererClassName": "cron"})
    with pytest.raises(InvalidConfig, match="DiscoverTriggerer class cannot be updated for batchsources"):
        conversion.merge(batch, cron)
    same = source_config(batchSourceConfig={"discoveryTriggererClassName": "immediate"}, parallelism=2)
    assert conversion.merge(batch, same).parallelism == 2


def test_update_keeps_the_fields_of_the_batch_config_that_it_leaves_out() -> None:
    config = {"discoveryTriggererClassName": "cron", "discoveryTriggererConfig": {"__CRON__": "0 0 * * * *"}}
    batch = source_config(batchSourceConfig=config, parallelism=1)
    more = conversion.merge(batch, source_config(parallelism=2))
    assert (more.parallelism, more.batch_source_config) == (2, config)
    other = {"discoveryTriggererConfig": {"__CRON__": "0 30 * * * *"}}
    assert conversion.merge(batch, source_config(batchSourceConfig=other)).batch_source_config == {**config, **other}


def test_parallelism_of_a_source_that_is_effectively_once_stays() -> None:
    before = source_config(processingGuarantees="EFFECTIVELY_ONCE", parallelism=1)
    with pytest.raises(InvalidConfig, match="parallelism of a source with EFFECTIVELY_ONCE cannot be changed"):
        conversion.merge(before, source_config(parallelism=2))
    assert conversion.merge(before, source_config(parallelism=1, configs={"a": 1})).parallelism == 1


def test_cron_trigger_names_the_next_time() -> None:
    trigger = CronTrigger()
    trigger.open({"__CRON__": "0 0 12 * * *", "timeZone": "Europe/Berlin"})
    assert trigger.next_after(1_767_225_600.0) == 1_767_265_200.0  # 2026-01-01 00:00 UTC, and 11:00 UTC
