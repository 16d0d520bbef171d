"""A function's state from the command line: what querystate and putstate show, take and refuse."""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import RequestRefused
from magnetar.state.values import Value
from magnetar.worker.rest.state import sent, shown

from tests.support.command import Answer, call
from tests.support.servers import COMMAND, Server, running
from tests.support.waiting import wait_for

SOURCE = """
from pulsar import Function


class Remember(Function):
    def process(self, input, context):
        context.put_state("last", input)
        context.incr_counter("messages", 1)
"""


@given(st.binary(min_size=1, max_size=20))
def test_what_is_shown_can_be_sent(data: bytes) -> None:
    assert sent(shown("k", Value(data, None, 3)), "k") == data


@given(st.integers(-(2**63), 2**63 - 1))
def test_counters_are_shown_as_numbers(number: int) -> None:
    data = number.to_bytes(8, "big", signed=True)
    assert shown("k", Value(data, number, 5)) == {"key": "k", "numberValue": number, "version": 5}
    assert sent({"key": "k", "numberValue": number}, "k") == data


def test_a_text_of_eight_characters_is_a_number_too_as_with_pulsar() -> None:
    assert shown("k", Value(b"aaaaaaaa", None, 0)) == {
        "key": "k", "stringValue": "aaaaaaaa", "numberValue": 0x6161616161616161, "version": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("state", "status", "reason"),
    [
        ({"key": "other", "stringValue": "v"}, 400, "Path key doesn't match key in json"),
        ({"stringValue": "v"}, 400, "Path key doesn't match key in json"),
        ({"key": "k"}, 500, "Invalid state value"),
        ({"key": "k", "stringValue": 3}, 400, "stringValue must be a string"),
        ({"key": "k", "numberValue": 2**63}, 400, "64-bit"),
        ({"key": "k", "numberValue": True}, 400, "64-bit"),
        ({"key": "k", "byteValue": "no base64!"}, 400, "base64"),
        ({"key": "k", "byteValue": {"a": 1}}, 400, "base64"),
    ],
)
def test_wrong_values_are_refused(state: dict[str, object], status: int, reason: str) -> None:
    with pytest.raises(RequestRefused, match=reason) as refused:
        sent(state, "k")
    assert refused.value.status == status


def test_bytes_come_before_text_and_text_before_numbers() -> None:
    state = {"key": "k", "byteValue": b64encode(b"a").decode(), "stringValue": "b", "numberValue": 3}
    assert sent(state, "k") == b"a"
    assert sent({**state, "byteValue": ""}, "k") == b"b"
    assert sent({**state, "byteValue": [-1, 2]}, "k") == b"\xff\x02"


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("standalone")
    with running("standalone", directory) as server:
        source = directory / "remember.py"
        source.write_text(SOURCE)
        cli(server, "functions", "create", "--py", str(source), "--classname", "remember.Remember", "--name", "memory",
            "--inputs", "memory-in").ok()  # fmt: skip
        yield server


def cli(server: Server, *arguments: str) -> Answer:
    return call(*arguments, admin_url=server.web_url, service_url=server.service_url)


def query(server: Server, key: str) -> Answer:
    return cli(server, "functions", "querystate", "--name", "memory", "--key", key)


def put(server: Server, state: object) -> Answer:
    text = state if isinstance(state, str) else json.dumps(state)
    return cli(server, "functions", "putstate", "--name", "memory", "--state", text)


@pytest.mark.slow
def test_querystate_shows_what_the_function_wrote(standalone: Server) -> None:
    cli(standalone, "produce", "memory-in", "-m", "one", "-m", "two").ok()
    wait_for(lambda: query(standalone, "last").out.count("two") == 1, "the last message in state", timeout_s=60)
    last = query(standalone, "last").ok().json()
    assert (last["key"], last["stringValue"]) == ("last", "two")
    counter = query(standalone, "messages").ok().json()
    assert {name: counter[name] for name in counter if name != "version"} == {"key": "messages", "numberValue": 2}


@pytest.mark.slow
@pytest.mark.parametrize("key", ["plain", "with/slash", "with space", "ümlaut%2F"])
def test_what_putstate_sets_querystate_shows(standalone: Server, key: str) -> None:
    put(standalone, {"key": key, "stringValue": "text"}).ok()
    assert query(standalone, key).ok().json()["stringValue"] == "text"
    put(standalone, {"key": key, "byteValue": b64encode(b"\xff\x01").decode()}).ok()
    assert query(standalone, key).ok().json()["byteValue"] == [-1, 1]
    put(standalone, {"key": key, "numberValue": -5}).ok()
    assert query(standalone, key).ok().json()["numberValue"] == -5


@pytest.mark.slow
def test_wrong_calls_are_refused_in_one_line(standalone: Server) -> None:
    query(standalone, "nothing").refused("key 'nothing' doesn't exist.")
    cli(standalone, "functions", "querystate", "--name", "nobody", "-k", "k").refused("'nobody' is not found")
    put(standalone, "no json").refused("--state is not valid JSON")
    put(standalone, {"stringValue": "v"}).refused("has no key")
    put(standalone, {"key": "k"}).refused("no value for key 'k'")
    put(standalone, {"key": "k", "text": "v"}).refused("unknown field text")
    put(standalone, {"key": "k" * 5000, "stringValue": "v"}).refused("4096")


@pytest.mark.slow
def test_watching_waits_for_a_key_that_does_not_exist_yet(standalone: Server, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("wb") as file:
        watching = subprocess.Popen(
            [*COMMAND, "--admin-url", standalone.web_url, "functions", "querystate", "--name", "memory", "-k", "later",
             "--watch"], stdout=file, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert watching.stderr is not None
            assert b"doesn't exist" in watching.stderr.readline()
            put(standalone, {"key": "later", "stringValue": "here"}).ok()
            wait_for(lambda: b'"here"' in out.read_bytes(), "the value", timeout_s=60)
        finally:
            watching.kill()
            watching.communicate()


@pytest.mark.slow
def test_a_function_that_is_created_again_remembers_nothing(standalone: Server, tmp_path: Path) -> None:
    source = tmp_path / "remember.py"
    source.write_text(SOURCE)
    create = ("functions", "create", "--py", str(source), "--classname", "remember.Remember", "--name", "again",
              "--inputs", "again-in")  # fmt: skip
    name = ("--name", "again")
    cli(standalone, *create).ok()
    cli(standalone, "functions", "putstate", *name, "-s", '{"key": "k", "stringValue": "old"}').ok()
    cli(standalone, "functions", "delete", *name).ok()
    cli(standalone, "functions", "querystate", *name, "-k", "k").refused("'again' is not found")
    cli(standalone, *create).ok()
    cli(standalone, "functions", "querystate", *name, "-k", "k").refused("key 'k' doesn't exist.")


@pytest.mark.slow
def test_without_a_state_store_the_answer_says_what_to_set(tmp_path: Path) -> None:
    with running("broker", tmp_path) as broker:
        url = ("--service-url", broker.service_url, "--admin-url", broker.web_url)
        (tmp_path / "worker").mkdir()
        with running("worker", tmp_path / "worker", *url) as worker:
            answer = httpx.get(f"{worker.worker_url}/admin/v3/functions/public/default/f/state/k", timeout=60)
            assert answer.status_code == 503
            assert "stateStorageServiceUrl" in answer.json()["reason"]


@pytest.mark.slow
def test_a_state_store_that_is_away_is_named_and_its_absence_is_no_error_of_the_worker(tmp_path: Path) -> None:
    source = tmp_path / "remember.py"
    source.write_text(SOURCE)
    with running("broker", tmp_path) as broker:
        url = ("--service-url", broker.service_url, "--admin-url", broker.web_url)
        (tmp_path / "worker").mkdir()
        with running("worker", tmp_path / "worker", *url, "--state-storage-service-url", "bk://127.0.0.1:1") as worker:
            create = ("--py", str(source), "--classname", "remember.Remember", "--name", "f", "--inputs", "f-in")
            call("functions", "create", *create, admin_url=worker.worker_url).ok()
            path = f"{worker.worker_url}/admin/v3/functions/public/default/f/state/k"
            put = {"state": (None, json.dumps({"key": "k", "numberValue": 1}), "application/json")}
            for answer in (httpx.get(path, timeout=60), httpx.post(path, files=put, timeout=60)):
                assert answer.status_code == 503
                assert answer.json()["reason"].startswith("the state store at bk://127.0.0.1:1 ")
