"""Functions written as Pulsar's documentation shows, unchanged, deployed by the commands that it shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import Server, running
from tests.support.shell import Shell
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CODE = Path(__file__).with_name("written_for_pulsar.py")
SERDE = "written_for_pulsar.PointSerDe"
TOPIC = "persistent://public/default/"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("written-for-pulsar")) as it:
        yield it


class Deployed:
    """One function of the file, on one runtime."""

    def __init__(self, shell: Shell, runtime: str) -> None:
        self.shell = shell
        self.runtime = runtime
        self.name = ""

    def __call__(self, class_name: str, *flags: str) -> Deployed:
        self.name = f"{class_name.lower()}-{self.runtime}"
        module = "written_for_pulsar"
        self.shell.deploy(self.name, CODE, f"{module}.{class_name}", "--runtime", self.runtime, *flags)
        return self

    def asked(self, what: str, *flags: str) -> Any:
        return self.shell("functions", what, "--name", self.name, *flags).json()

    def read(self, topic: str) -> dict[str, Any]:
        line = self.shell("-o", "json", "consume", topic, "-s", "test", "-p", "Earliest").out
        message: dict[str, Any] = json.loads(line)
        return message


@pytest.fixture(params=["process", "thread"])
def deployed(server: Server, request: pytest.FixtureRequest) -> Deployed:
    return Deployed(Shell(server), request.param)


def test_a_module_is_its_function_process(deployed: Deployed) -> None:
    shell, name = deployed.shell, deployed("process").name
    assert shell.through(name, "hi") == ["hi!"]
    short = f"{name}-by-module"
    shell.deploy(short, CODE, "written_for_pulsar", "--runtime", deployed.runtime)
    assert shell.through(short, "hi") == ["hi!"]


def test_an_object_lives_as_long_as_its_instance_and_reads_its_config(deployed: Deployed) -> None:
    deployed("Greeting", "--user-config", '{"word": "moin"}')
    assert deployed.shell.through(deployed.name, "ada", "bob", outputs=2) == ["moin ada 1", "moin bob 2"]


def test_the_context_says_where_it_is(deployed: Deployed) -> None:
    name = deployed("Describing").name
    shell = deployed.shell
    shell("produce", f"{name}-in", "-m", "x", "-k", "a key", "-p", "colour=red")
    assert json.loads(deployed.read(f"{name}-out")["content"]) == {
        "name": name, "tenant": "public", "namespace": "default", "instance": "0", "topic": f"{TOPIC}{name}-in",
        "properties": {"colour": "red"}, "key": "a key", "has_id": True, "inputs": [f"{name}-in"],
        "output": f"{name}-out",
    }  # fmt: skip


def test_logs_go_to_the_log_topic_and_the_log(deployed: Deployed) -> None:
    name = deployed("Logging", "--log-topic", f"logs-{deployed.runtime}").name
    deployed.shell.through(name, "a danger")
    assert "danger in message" in deployed.read(f"logs-{deployed.runtime}")["content"]
    wait_for(lambda: "danger in message" in deployed.shell("functions", "logs", "--name", name).out, "line of the log")


def test_metrics_are_in_the_statistics(deployed: Deployed) -> None:
    deployed("Measuring")
    deployed.shell.through(deployed.name, "four", "seven", outputs=2)

    def metrics() -> dict[str, float]:
        found: dict[str, float] = deployed.asked("stats")["instances"][0]["metrics"]["userMetrics"]
        return found

    wait_for(lambda: metrics().get("user_metric_hits_count") == 2, "the metrics of both messages")
    assert metrics()["user_metric_length_sum"] == 9


def test_values_go_through_a_serde_of_the_package(deployed: Deployed) -> None:
    topic = f"mirroring-{deployed.runtime}-in"
    deployed("Mirroring", "--custom-serde-inputs", json.dumps({topic: SERDE}), "--output-serde-classname", SERDE)
    assert deployed.shell.through(deployed.name, "3/4") == ["4/3"]


def test_messages_are_routed_with_key_properties_and_time(deployed: Deployed) -> None:
    small, large = f"small-{deployed.runtime}", f"large-{deployed.runtime}"
    name = deployed("Routing", "--user-config", json.dumps({"small": small, "large": large})).name
    deployed.shell("produce", f"{name}-in", "-m", "tiny", "-k", "k", "-p", "a=b")
    deployed.shell("produce", f"{name}-in", "-m", "enormous", "-k", "k", "-p", "a=b")
    for topic, content in ((small, "tiny"), (large, "enormous")):
        message = deployed.read(topic)
        assert (message["content"], message["key"]) == (content, "k")
        assert message["properties"] == {"a": "b", "came_from": f"{TOPIC}{name}-in"}
        assert message["eventTime"] > 0


def test_a_message_is_published_by_a_serde_and_calls_back(deployed: Deployed) -> None:
    target = f"published-{deployed.runtime}"
    name = deployed("Publishing", "--user-config", json.dumps({"topic": target})).name
    deployed.shell("produce", f"{name}-in", "-m", "xyz")
    assert deployed.read(target)["content"] == "3/0"
    wait_for(lambda: "published: " in deployed.shell("functions", "logs", "--name", name).out, "line of the callback")


def test_secrets_are_given_and_unknown_ones_are_none(deployed: Deployed) -> None:
    deployed("Secretive", "--secrets", '{"user": "ada-the-first"}')
    assert deployed.shell.through(deployed.name, "x") == ["ada-the-first:None"]


def test_counters_and_values_are_kept(deployed: Deployed) -> None:
    deployed("Counting")
    assert deployed.shell.through(deployed.name, "a b a") == ["2"]
    wait_for(lambda: deployed.asked("querystate", "-k", "last")["stringValue"] == "a b a", "the value in the store")
    assert deployed.asked("querystate", "-k", "a")["numberValue"] == 2


def test_an_exception_is_in_the_status_and_the_message_comes_again(deployed: Deployed) -> None:
    name = deployed("Failing").name
    deployed.shell("produce", f"{name}-in", "-m", "x")

    def status() -> dict[str, Any]:
        found: dict[str, Any] = deployed.asked("status")["instances"][0]["status"]
        return found

    wait_for(lambda: status()["numUserExceptions"] >= 1, "the exception in the status")
    assert "cannot work" in status()["latestUserExceptions"][0]["exceptionString"]
    assert status()["running"]
    assert status()["numSuccessfullyProcessed"] == 0
