"""A source with EFFECTIVELY_ONCE: each record is there once, whoever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.wire import functions_pb2 as records

from tests.support.eventually import until
from tests.support.exact import ExactSpec, all_messages, arrived, exact_spec_maker, run_and_kill
from tests.support.instances import MakeSpec, client, make_spec, topic
from tests.support.keys import write_pair
from tests.support.servers import Server, running

__all__ = ["client", "make_spec", "topic"]

SEEDS = int(os.environ.get("MAGNETAR_CONNECTOR_SEEDS", "4"))
"""Of the rounds of kills in `make test-crash`."""
NUMBERS = """
import random, time
from magnetar.api.connector import Record, Retry, Source

class Numbers(Source):
    def not_effectively_once(self, config):
        return ""

    def open(self, config, context):
        self.config = config
        self.number = context.position or 0
        self.rng = random.Random()  # batches are other ones each time

    def read(self):
        time.sleep(0.004)
        if self.rng.random() < self.config.get("retries", 0.02):
            raise Retry("away")
        end = min(self.number + self.rng.randint(1, 40), self.config["last"])
        numbers = range(self.number, end)
        self.number = end
        return [self.record(number) for number in numbers]

    def record(self, number):
        key = str(number % 5) if number % 3 else None
        value = "\\ud800" if number % 50 == 7 else b"%d" % number
        return Record(value, key=key)

    def snapshot(self):
        return self.number
"""


def expected(last: int) -> list[bytes]:
    return [b"%d" % number for number in range(last) if number % 50 != 7]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker of this module's own, to be killed."""
    directory = tmp_path_factory.mktemp("exact-sources")
    config = directory / "broker.yml"
    config.write_text("keepAliveIntervalSeconds: 1\n")
    with running("broker", directory, "--config", str(config)) as server:
        yield server


@pytest.fixture(scope="module")
def state_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("state-store", tmp_path_factory.mktemp("state")) as server:
        yield server


@pytest.fixture
def exact(make_spec: MakeSpec, server: Server, state_store: Server) -> ExactSpec:
    return exact_spec_maker(make_spec, server, str(state_store.addresses["stateStorageServiceUrl"]))


def numbers(exact: ExactSpec, last: int, **details: object) -> InstanceSpec:
    source = {"className": "user_code.Numbers", "configs": json.dumps({"last": last})}
    return exact(NUMBERS, source=source, componentType=records.FunctionDetails.SOURCE, **details)


@pytest.mark.parametrize(
    ("seed", "last"),
    [(1, 3000), *(pytest.param(seed, 20_000, marks=pytest.mark.crash) for seed in range(2, 2 + SEEDS))],
)
async def test_each_record_is_there_once_when_the_instance_is_killed(
    client: AsyncClient, exact: ExactSpec, topic: str, seed: int, last: int
) -> None:
    print(f"seed {seed}")
    spec, runtime, output = numbers(exact, last), ProcessRuntime(), f"{topic}-out"
    kills = await run_and_kill(runtime, spec, client, output, random.Random(seed), len(expected(last)))
    assert await all_messages(client, output) == expected(last), f"after {kills} kills, seed {seed}"
    assert kills > 1
    await runtime.close()


async def test_each_record_is_there_once_when_the_broker_is_killed(
    client: AsyncClient, server: Server, exact: ExactSpec, topic: str
) -> None:
    last, output, runtime = 6000, f"{topic}-out", ProcessRuntime()
    instance = await runtime.start(numbers(exact, last))
    for number in range(2):
        await arrived(client, output, 1500 * (number + 1))
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.restart)
    await arrived(client, output, len(expected(last)))
    assert await all_messages(client, output) == expected(last)
    await instance.stop(30)
    await runtime.close()


async def test_each_record_is_there_once_on_partitions(
    client: AsyncClient, server: Server, exact: ExactSpec, topic: str
) -> None:
    last, output, runtime, rng = 6000, f"{topic}-out", ProcessRuntime(), random.Random(1)
    async with httpx.AsyncClient(base_url=server.web_url, timeout=60) as http:
        path = f"/admin/v2/{output.replace('://', '/')}/partitions"
        (await http.put(path, json=3)).raise_for_status()
        spec = numbers(exact, last)
        await run_and_kill(runtime, spec, client, output, rng, len(expected(last)))
        found = [await all_messages(client, partition) for partition in await client.partitions(output)]
        assert sorted(int(data) for one in found for data in one) == list(map(int, expected(last)))
        assert all(list(map(int, one)) == sorted(map(int, one)) for one in found)
        assert all(found)
        (await http.post(path, json=4)).raise_for_status()
    instance = await runtime.start(spec)
    assert "has 4 partitions instead of 3" in await instance.wait()
    await runtime.close()


async def test_each_record_is_there_once_when_the_state_store_is_away(
    client: AsyncClient, state_store: Server, exact: ExactSpec, topic: str
) -> None:
    last, output, runtime = 4000, f"{topic}-out", ProcessRuntime()
    spec = numbers(exact, last)
    # One that is opened anew waits for its position to be kept.
    spec.details.source.configs = json.dumps({"last": last, "retries": 0})
    instance = await runtime.start(spec)
    await arrived(client, output, 500)
    await asyncio.to_thread(state_store.kill)
    await arrived(client, output, 1500)

    async def is_shown() -> bool:
        return "cannot save the position" in (await instance.status()).failureException

    await until(is_shown)
    os.kill(instance.process_id, signal.SIGKILL)
    await instance.wait()
    await asyncio.to_thread(state_store.restart)
    again = await runtime.start(spec)
    await arrived(client, output, len(expected(last)))
    await again.stop(30)
    await runtime.close()
    assert await all_messages(client, output) == expected(last)


async def test_source_that_is_created_again_begins_anew(client: AsyncClient, exact: ExactSpec, topic: str) -> None:
    last, output, runtime = 300, f"{topic}-out", ProcessRuntime()
    for times in (1, 2):
        spec = numbers(exact, last)
        spec.metadata.functionUuid += str(times)
        instance = await runtime.start(spec)
        await arrived(client, output, times * len(expected(last)))
        await instance.stop(30)
    await runtime.close()
    assert await all_messages(client, output) == expected(last) * 2


async def test_effectively_once_without_state_store_is_refused(exact: ExactSpec) -> None:
    runtime = ProcessRuntime()
    instance = await runtime.start(replace(numbers(exact, 10), state_url=""))
    assert "EFFECTIVELY_ONCE requires a state store for the position of the source" in await instance.wait()
    await runtime.close()


async def test_record_that_names_a_topic_ends_an_instance_that_is_effectively_once(exact: ExactSpec) -> None:
    runtime = ProcessRuntime()
    spec = numbers(exact, 10)
    code = spec.package / "user_code.py"
    code.write_text(code.read_text().replace("key=key", "topic='persistent://public/default/elsewhere'"))
    instance = await runtime.start(spec)
    assert "a record sets the topic persistent://public/default/elsewhere" in await instance.wait()
    await runtime.close()


async def test_what_an_exact_source_sends_is_encrypted(
    client: AsyncClient, exact: ExactSpec, topic: str, tmp_path: Path
) -> None:
    pair, last = write_pair(tmp_path, "k"), 300
    spec, runtime, output = numbers(exact, last), ProcessRuntime(), f"{topic}-out"
    spec.details.sink.producerSpec.cryptoSpec.CopyFrom(pair.spec())
    instance = await runtime.start(spec)
    config = ConsumerConfig(initial_position="Earliest", crypto_key_reader=pair.reader)
    async with await client.subscribe(output, "s", config) as consumer:
        found = [(await consumer.receive(30)).data for _ in range(100)]
        os.kill(instance.process_id, signal.SIGKILL)
        await instance.wait()
        await runtime.start(spec)
        found += [(await consumer.receive(30)).data for _ in range(len(expected(last)) - 100)]
        assert found == expected(last)
    raw = replace(config, crypto_key_reader=None, crypto_failure_action="CONSUME")
    async with await client.subscribe(output, "raw", raw) as consumer:
        assert (await consumer.receive(30)).entry.is_encrypted
    await runtime.close()
