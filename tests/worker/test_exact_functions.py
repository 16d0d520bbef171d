"""EFFECTIVELY_ONCE as people use it: created over REST, looked at, begun again by `functions reset-cursor`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.errors import RequestRefused
from magnetar.wire import functions_pb2 as records
from magnetar.worker.config import WorkerConfig
from magnetar.worker.functions.prerequisites import Prerequisites

from tests.support.command import call
from tests.support.eventually import eventually
from tests.support.exact import all_messages, arrived, send
from tests.support.functions import Functions
from tests.support.servers import Server, running

ECHO = "def process(text):\n    return text + '!'\n"
TOPICS = "persistent://public/default/"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("exact")) as server:
        yield server


@pytest.fixture(scope="module")
def functions(server: Server) -> Iterator[Functions]:
    with Functions(server.web_url) as functions:
        yield functions


def config(name: str, **more: Any) -> dict[str, Any]:
    return {
        "className": f"{name}.process",
        "inputs": [f"{TOPICS}{name}-in"],
        "output": f"{TOPICS}{name}-out",
        "processingGuarantees": "EFFECTIVELY_ONCE",
        "subscriptionPosition": "Earliest",
    } | more


def policy(server: Server, topic: str) -> Any:
    return httpx.get(
        f"{server.web_url}/admin/v2/persistent/public/default/{topic}/deduplicationEnabled", timeout=60
    ).json()


def make_partitions(server: Server, topic: str) -> None:
    httpx.put(
        f"{server.web_url}/admin/v2/persistent/public/default/{topic}/partitions", json=2, timeout=60
    ).raise_for_status()


@pytest.mark.parametrize("runtime", ["thread", "process"])
async def test_a_created_function_is_exact_and_begins_again_when_its_cursor_is_reset(
    server: Server, functions: Functions, runtime: str
) -> None:
    name = f"echo_{runtime}"
    async with AsyncClient(server.service_url) as client:
        expected = await send(client, f"{TOPICS}{name}-in", 20, 5)
        answer = await asyncio.to_thread(functions.create, name, ECHO, config(name, runtimeEnv=runtime))
        assert answer.status_code == 204, answer.text
        assert policy(server, f"{name}-out") is True
        await arrived(client, f"{TOPICS}{name}-out", 100)
        reset = await asyncio.to_thread(
            call, "functions", "reset-cursor", "--name", name, "--message-id", "earliest", admin_url=server.web_url
        )
        assert "Reset successfully" in reset.ok().out
        await arrived(client, f"{TOPICS}{name}-out", 200)
        assert await all_messages(client, f"{TOPICS}{name}-out") == expected * 2
        functions.delete(name)
        answer = await asyncio.to_thread(functions.create, name, ECHO, config(name, runtimeEnv=runtime, subName="new"))
        assert answer.status_code == 204, answer.text
        await arrived(client, f"{TOPICS}{name}-out", 300)
        assert await all_messages(client, f"{TOPICS}{name}-out") == expected * 3


async def test_cursors_stay_while_somebody_consumes_the_inputs(server: Server, functions: Functions) -> None:
    """It may be an instance of a worker that hangs: it would skip all that comes back, as done."""
    name = "watched"
    reset = ("functions", "reset-cursor", "--name", name, "--message-id", "earliest")
    async with AsyncClient(server.service_url) as client:
        await send(client, f"{TOPICS}{name}-in", 1, 5)
        answer = await asyncio.to_thread(functions.create, name, ECHO, config(name, runtimeEnv="thread"))
        assert answer.status_code == 204, answer.text
        await arrived(client, f"{TOPICS}{name}-out", 5)
        still_there = ConsumerConfig(type="Failover", name="zombie")
        zombie = await client.subscribe(f"{TOPICS}{name}-in", f"public/default/{name}", still_there)
        refused = await asyncio.to_thread(call, *reset, admin_url=server.web_url)
        assert refused.code != 0
        assert "still has consumer zombie, whose worker may hang" in refused.err
        await zombie.close()
        (await asyncio.to_thread(call, *reset, admin_url=server.web_url)).ok()
        await arrived(client, f"{TOPICS}{name}-out", 10)


async def test_a_partitioned_input_is_reset_by_position_of_one_partition(server: Server, functions: Functions) -> None:
    name = "parted"
    await asyncio.to_thread(make_partitions, server, f"{name}-in")
    async with AsyncClient(server.service_url) as client:
        first = await send(client, f"{TOPICS}{name}-in-partition-0", 2, 5)
        second = await send(client, f"{TOPICS}{name}-in-partition-1", 2, 5, first=10)
        answer = await asyncio.to_thread(functions.create, name, ECHO, config(name))
        assert answer.status_code == 204, answer.text
        await arrived(client, f"{TOPICS}{name}-out", 20)
        producer = await client.create_producer(f"{TOPICS}{name}-in-partition-1")
        position = await producer.send(b"m20")
        await arrived(client, f"{TOPICS}{name}-out", 21)
        where = f"{position.ledger_id}:{position.entry_id}"
        ambiguous = call("functions", "reset-cursor", "--name", name, "--message-id", where, admin_url=server.web_url)
        ambiguous.refused("could belong to any of 2 topics or partitions")
        reset = ("functions", "reset-cursor", "--name", name, "--message-id", f"{where}:1")
        (await asyncio.to_thread(call, *reset, admin_url=server.web_url)).ok()
        await arrived(client, f"{TOPICS}{name}-out", 22)
        found = sorted(await all_messages(client, f"{TOPICS}{name}-out"))
        assert found == sorted([*first, *second, b"m20!", b"m20!"])


async def test_a_poison_message_shows_in_status_and_the_instance_tries_again(
    server: Server, functions: Functions
) -> None:
    name = "poison"
    async with AsyncClient(server.service_url) as client:
        await send(client, f"{TOPICS}{name}-in", 2, 5)
        code = "def process(text):\n    if text == 'm7': raise ValueError('no 7')\n    return text + '!'\n"
        answer = await asyncio.to_thread(functions.create, name, code, config(name))
        assert answer.status_code == 204, answer.text

        async def has_restarted() -> dict[str, Any] | None:
            status = await asyncio.to_thread(functions.status, name)
            return status if status["numRestarts"] >= 2 and "no 7" in status["error"] else None

        status = await eventually(has_restarted, "restart with the error in status")
        assert f":2 of {TOPICS}{name}-in failed" in status["error"]
        assert await all_messages(client, f"{TOPICS}{name}-out") == [b"m%d!" % number for number in range(5)]
        answer = await asyncio.to_thread(functions.update, name, ECHO, config(name))
        assert answer.status_code == 204, answer.text
        await arrived(client, f"{TOPICS}{name}-out", 10)
        assert await all_messages(client, f"{TOPICS}{name}-out") == [b"m%d!" % number for number in range(10)]


@pytest.mark.parametrize("partitions", [0, 2])
async def test_the_remedy_that_status_names_leaves_a_poisoned_entry_out(
    server: Server, functions: Functions, partitions: int
) -> None:
    name = f"remedy{partitions}"
    if partitions:
        make_partitions(server, f"{name}-in")
    async with AsyncClient(server.service_url) as client:
        code = "def process(text):\n    if text == 'm0': raise ValueError('no 0')\n    return text + '!'\n"
        answer = await asyncio.to_thread(functions.create, name, code, config(name))
        assert answer.status_code == 204, answer.text
        await send(client, f"{TOPICS}{name}-in" + ("-partition-1" if partitions else ""), 2, 5)

        async def shown() -> str | None:
            status = await asyncio.to_thread(functions.status, name)
            found = re.search(r"skip this entry \(([^)]*)\)", status["error"])
            return found and found[1]

        command = await eventually(shown, "remedy in status")
        (await asyncio.to_thread(call, *command.split(), "--name", name, admin_url=server.web_url)).ok()
        await arrived(client, f"{TOPICS}{name}-out", 5)
        assert await all_messages(client, f"{TOPICS}{name}-out") == [b"m%d!" % number for number in range(5, 10)]


def test_what_contradicts_exactness_is_refused_by_name(functions: Functions) -> None:
    for more, reason in (
        ({"maxMessageRetries": 3}, "MaxMessageRetries and Effectively once don't gel well"),
        ({"autoAck": False}, "autoAck must be equal to true"),
        ({"timeoutMs": 1000}, "Message timeout can only be specified with processing guarantee is ATLEAST_ONCE"),
        ({"output": "non-persistent://public/default/out"}, "is non-persistent"),
        ({"inputs": ["non-persistent://public/default/in"]}, "is non-persistent"),
    ):
        answer = functions.create("contrary", ECHO, config("contrary", **more))
        assert answer.status_code == 400
        assert reason in answer.json()["reason"]


def prerequisites(server: Server, state_url: str) -> Prerequisites:
    """What prepares outputs, which needs no more than the settings."""
    config = WorkerConfig(
        service_url=server.service_url, admin_url=server.web_url, data_dir=Path("/nowhere"), state_url=state_url
    )
    return Prerequisites(config, "w", None, None, None)  # type: ignore[arg-type]


async def test_outputs_that_cannot_be_exact_are_refused_with_the_remedy(server: Server) -> None:
    await asyncio.to_thread(make_partitions, server, "many-out")
    details = records.FunctionDetails(processingGuarantees=records.EFFECTIVELY_ONCE)
    details.sink.topic = f"{TOPICS}many-out"
    with pytest.raises(RequestRefused, match=r"has 2 partitions, .* set stateStorageServiceUrl"):
        await prerequisites(server, "").prepare_output(details)
    await prerequisites(server, "bk://127.0.0.1:1").prepare_output(details)
    assert policy(server, "many-out") is True
    details.sink.topic = "persistent://public/nowhere/out"
    with pytest.raises(RequestRefused, match="cannot create output topic"):
        await prerequisites(server, "").prepare_output(details)
