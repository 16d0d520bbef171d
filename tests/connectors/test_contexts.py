"""What contexts give to connectors and their transform functions: state, secrets, metrics; and records of sources."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from magnetar.client.client import AsyncClient
from magnetar.config.connector_conversion import IDENTITY
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.interface import Runtime
from magnetar.runtime.thread.runtime import ThreadRuntime
from magnetar.wire import functions_pb2 as records

from tests.support.eventually import until
from tests.support.function_topics import no_backlog, receive, send_batches
from tests.support.instances import MakeSpec, any_runtime, client, make_spec, server, topic
from tests.support.servers import Server

__all__ = ["any_runtime", "client", "make_spec", "server", "topic"]

CODE = '''
import asyncio, json, time
from magnetar.api.connector import Record, Sink, Source

class Counter(Sink):
    """Counts in its state; writes the count to a file."""

    def not_effectively_once(self, config):
        return ""

    def open(self, config, context):
        self.context = context
        self.path = config["path"]
        assert context.secret("password") == "geheim"
        context.put_state("opened", "yes")

    def write_batch(self, records):
        count = int(self.context.get_state("count") or 0) + len(records)
        self.context.put_state("count", str(count))
        self.context.record_metric("counted", len(records))
        opened = self.context.get_state("opened").decode()
        with open(self.path, "a") as file:
            file.write(f"{count} {opened}\\n")

class Numbers(Source):
    """Counts in its state; asynchronous."""

    async def open(self, config, context):
        self.context = context
        self.task = asyncio.create_task(asyncio.sleep(3600))

    async def read(self):
        number = int(self.context.get_state("number") or 0)
        if number >= 10:
            await asyncio.sleep(0.1)
            return None
        self.context.put_state("number", str(number + 1))
        return [Record(str(number).encode(), key="k")]

    def snapshot(self):
        return 0

class Odd:
    def process(self, value, context):
        number = int(value)
        if number == 7:
            raise ValueError("seven is no number")
        context.put_state("seen", str(number))
        if number % 2 == 0:
            return None
        return f"{context.get_user_config_value('name')} {number}" if number != 9 else Record("nine", key="new")
'''


def with_state(spec: InstanceSpec, state_store: Server) -> InstanceSpec:
    return replace(spec, state_url=str(state_store.addresses["stateStorageServiceUrl"]))


@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", "ATMOST_ONCE", "EFFECTIVELY_ONCE"])
async def test_state_of_a_sink_lasts(
    client: AsyncClient,
    server: Server,
    state_store: Server,
    make_spec: MakeSpec,
    topic: str,
    tmp_path: Path,
    guarantee: str,
) -> None:
    path = tmp_path / "counts"
    is_exact = guarantee == "EFFECTIVELY_ONCE"
    spec = make_spec(
        CODE,
        IDENTITY,
        name=guarantee,
        sink={"className": "user_code.Counter", "configs": json.dumps({"path": str(path)}), "typeClassName": "none"},
        source={"subscriptionType": "FAILOVER" if is_exact else "SHARED"},
        secretsMap='{"password": "geheim"}',
        processingGuarantees=guarantee,
        componentType=records.FunctionDetails.SINK,
    )
    runtime = ThreadRuntime(server.service_url)
    for turn in range(2):
        instance = await runtime.start(with_state(spec, state_store))
        await send_batches(client, f"{topic}-in", [[b"x"] * 5, [b"x"] * 5])

        async def are_counted(turn: int = turn) -> bool:
            lines = path.read_text().splitlines() if path.exists() else []
            return lines[-1:] == [f"{10 * (turn + 1)} yes"]

        await until(are_counted)
        await no_backlog(server, f"{topic}-in", f"public/default/{guarantee}")
        metrics = await instance.metrics()
        assert sum(value for name, value in metrics.userMetrics.items() if "counted" in name and "sum" in name) == 10
        await instance.stop(10)
    await runtime.close()


async def test_a_source_has_state_and_a_transform_function(
    client: AsyncClient, state_store: Server, make_spec: MakeSpec, topic: str, any_runtime: Runtime
) -> None:
    spec = make_spec(
        CODE,
        "user_code.Odd",
        name=topic.rpartition("-")[2],
        source={"className": "user_code.Numbers"},
        userConfig='{"name": "number"}',
        componentType=records.FunctionDetails.SOURCE,
    )
    instance = await any_runtime.start(with_state(spec, state_store))
    messages = await receive(client, f"{topic}-out", 4)
    assert [(message.data.decode(), message.key) for message in messages] == [
        ("number 1", "k"),
        ("number 3", "k"),
        ("number 5", "k"),
        ("nine", "new"),
    ]
    status = await instance.status()
    assert (
        "sending a record to the dead-letter topic: ValueError: seven is no number"
        in status.latestSystemExceptions[0].exceptionString
    )
    await instance.stop(10)
    instance = await any_runtime.start(with_state(spec, state_store))  # the state says that there is nothing more

    async def has_begun() -> bool:
        return (await instance.status()).running

    await until(has_begun)
    await instance.stop(10)
    assert len(await receive(client, f"{topic}-out", 4)) == 4


async def test_without_a_state_store_its_methods_say_so(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str
) -> None:
    runtime = ThreadRuntime(server.service_url)
    spec = make_spec(
        CODE, IDENTITY, source={"className": "user_code.Numbers"}, componentType=records.FunctionDetails.SOURCE
    )
    instance = await runtime.start(spec)
    assert (
        "no state store is configured: set stateStorageServiceUrl in the worker configuration" in await instance.wait()
    )
    await runtime.close()
