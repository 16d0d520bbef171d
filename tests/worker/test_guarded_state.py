"""A state store with a key: functions keep state, and reach no other function's, not even with our own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.support.functions import Functions
from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

COUNT = """
def process(input, context):
    context.incr_counter("n", 1)
    return str(context.get_counter("n"))
"""
SPY = """
import gc
import json


def process(input, context):
    from magnetar.state.access import without_token
    from magnetar.state.client import TableClient

    context.put_state("own", "mine")
    own = next(one._store.url for one in gc.get_objects() if type(one).__name__ == "Retries")
    table = next(one.table for one in gc.get_objects() if type(one).__name__ == "Retries")
    found = {"own table": table.split("@")[0]}
    for how, url in (("no token", without_token(own)), ("own token", own)):
        for name in (input, table):
            client = TableClient(url)
            try:
                found[f"{how}, {'own' if name == table else 'other'}"] = str(client.read(name, [b"n"]))
            except Exception as error:
                found[f"{how}, {'own' if name == table else 'other'}"] = str(error)
            client.close()
    return json.dumps(found)
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("guarded")
    key = directory / "state.key"
    key.write_bytes(bytes(range(32)))
    config = directory / "standalone.yml"
    config.write_text(f"stateStorageTokenSecretKey: {key}\n")
    with running("standalone", directory, "--config", str(config)) as it:
        yield it


def answer(it: Server, name: str, text: str) -> str:
    """What a function makes of a text."""
    client = pulsar.Client(it.service_url, logger=None)
    try:
        consumer = client.subscribe(f"{name}-out", "test", initial_position=pulsar.InitialPosition.Earliest)
        client.create_producer(f"{name}-in").send(text.encode())
        message = consumer.receive(30_000)
        consumer.acknowledge(message)
        consumer.close()
        return str(message.data().decode())
    finally:
        client.close()


def create(it: Server, name: str, source: str, **config: Any) -> None:
    with Functions(it.web_url) as functions:
        answer = functions.create(
            name, source, {"className": name, "inputs": [f"{name}-in"], "output": f"{name}-out", **config}
        )
        assert answer.status_code in (200, 204), answer.text


@pytest.mark.parametrize("runtime", ["process", "thread"])
def test_functions_keep_state_and_the_worker_shows_it(guarded: Server, runtime: str) -> None:
    name = f"count_{runtime}"
    create(guarded, name, COUNT, runtimeEnv=runtime)
    assert answer(guarded, name, "a") == "1"
    with Functions(guarded.web_url) as functions:
        state = functions._http.get(f"{name}/state/n")
        assert state.json()["numberValue"] == 1
        functions.delete(name)


def test_function_reaches_its_own_state_alone(guarded: Server) -> None:
    create(guarded, "victim", COUNT, runtimeEnv="process")
    assert answer(guarded, "victim", "a") == "1"
    with Functions(guarded.web_url) as functions:
        victim = functions._http.get("victim").json()
    assert victim
    create(guarded, "spy", SPY, runtimeEnv="process")
    found = json.loads(answer(guarded, "spy", "public/default/victim"))
    assert found["own table"] == "public/default/spy"
    assert "requires a token, and the caller sent none" in found["no token, other"]
    assert "requires a token, and the caller sent none" in found["no token, own"]
    assert "requires a token, and the caller sent an invalid one" in found["own token, other"]
    assert found["own token, own"] == "[None]"


def test_wrong_key_is_named(tmp_path: Path, guarded: Server) -> None:
    key = tmp_path / "other.key"
    key.write_bytes(bytes(32))
    config = tmp_path / "functions_worker.yml"
    config.write_text(
        f"stateStorageTokenSecretKey: {key}\n"
        f"stateStorageServiceUrl: {guarded.addresses['stateStorageServiceUrl']}\n"
        f"pulsarServiceUrl: {guarded.service_url}\npulsarWebServiceUrl: {guarded.web_url}\n"
        "pulsarFunctionsNamespace: public/other\n"
    )
    with running("worker", tmp_path, "--config", str(config)) as it, Functions(it.worker_url) as functions:
        source = {"className": "late", "inputs": ["late-in"], "output": "late-out"}
        assert functions.create("late", COUNT, source).status_code in (200, 204)
        client = pulsar.Client(guarded.service_url, logger=None)
        client.create_producer("late-in").send(b"a")
        client.close()
        wait_for(
            lambda: "stateStorageTokenSecretKey" in json.dumps(functions.status("late")), "the reason in the status"
        )
