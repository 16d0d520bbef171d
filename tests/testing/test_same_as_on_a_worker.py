"""What a function does in a `FunctionTest` is what it does on a worker: one suite runs on both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from magnetar.client import EARLIEST, Client
from magnetar.testing import FunctionTest

from tests.support.servers import Server, running
from tests.support.waiting import wait_for
from tests.testing import behaviours

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SOURCE = Path(behaviours.__file__)
TEXTS = ("a", "b", "c")
CASES: list[tuple[Any, dict[str, Any]]] = [
    (behaviours.record, {}),
    (behaviours.names, {"userConfig": {"limit": 3}}),
    (behaviours.acknowledges, {"processingGuarantees": "MANUAL"}),
    (behaviours.acknowledges_by_record, {"processingGuarantees": "MANUAL"}),
    (behaviours.pauses, {}),
    (behaviours.Seeks, {}),
    (behaviours.Seeks, {"processingGuarantees": "ATMOST_ONCE"}),
    (behaviours.publishes, {}),
    (behaviours.is_async, {}),
    (behaviours.record, {"processingGuarantees": "EFFECTIVELY_ONCE"}),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("standalone")) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with Client(server.service_url, admin_url=server.web_url) as client:
        yield client


@pytest.mark.parametrize(("function", "settings"), CASES)
def test_function_does_the_same_in_a_test_and_on_a_worker(
    server: Server, client: Client, function: Any, settings: dict[str, Any]
) -> None:
    name = f"same-{CASES.index((function, settings))}"
    expected = in_a_test(function, f"{name}-in", f"{name}-out", {"name": name, **settings})
    assert expected[0], "no outputs to compare"
    assert on_worker(server, client, function, name, settings, expected) == expected


def in_a_test(function: Any, topic: str, output: str, settings: dict[str, Any]) -> tuple[list[str], int]:
    """Return the outputs and the backlog after three messages."""
    with FunctionTest(function, inputs=topic, output=output, **settings) as f:
        for text in TEXTS:
            f.send(text, key="k", properties={"p": "q"})
            f.settle()
        return f.outputs(into=bytes.decode), f.backlog


def on_worker(
    server: Server, client: Client, function: Any, name: str, settings: dict[str, Any], wanted: tuple[list[str], int]
) -> tuple[list[str], int]:
    """Return the same of a function that is deployed."""
    base = f"{server.web_url}/admin/v3/functions/public/default/{name}"
    config = {
        "inputs": [f"{name}-in"], "output": f"{name}-out", "runtime": "PYTHON", "runtimeEnv": "thread",
        "className": f"behaviours.{function.__name__}", **settings,
    }  # fmt: skip
    parts: Any = {
        "functionConfig": (None, json.dumps(config), "application/json"),
        "data": (SOURCE.name, SOURCE.read_bytes(), "application/octet-stream"),
    }
    answer = httpx.post(base, files=parts, timeout=60)
    assert answer.status_code == 204, answer.text
    stats = f"{server.web_url}/admin/v2/persistent/public/default/{name}-in/stats"
    found: list[str] = []

    def backlog() -> int:
        (one,) = httpx.get(stats, timeout=60).json()["subscriptions"].values()
        return int(one["msgBacklog"])

    try:
        wait_for(lambda: httpx.get(f"{base}/status", timeout=60).json()["numRunning"] == 1, "a running instance")
        with client.create_reader(f"{name}-out", EARLIEST) as reader:
            with client.create_producer(f"{name}-in") as producer:
                for count, text in enumerate(TEXTS):  # one after the other, as in the test
                    producer.send(text.encode(), key="k", properties={"p": "q"})
                    read_until(reader, found, min(count + 1, len(wanted[0])))
            read_until(reader, found, len(wanted[0]))
        wait_for(lambda: backlog() == wanted[1], f"a backlog of {wanted[1]}", 20)
        return found, backlog()
    finally:
        httpx.delete(base, timeout=60)


def read_until(reader: Any, found: list[str], count: int) -> None:
    def read() -> bool:
        while reader.has_message_available():
            found.append(reader.read_next().data.decode())
        return len(found) >= count

    wait_for(read, f"the outputs; {found}", 20)
