"""Functions written as Pulsar's documentation shows, unchanged, and the official client at both of their ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from tests.support.functions import Functions
from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CODE = Path(__file__).with_name("written_for_pulsar.py")
MODULE = CODE.stem
SERDE = f"{MODULE}.PointSerDe"
TOPIC = "persistent://public/default/"
RECEIVE_MS = 30_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("written-for-pulsar")) as it:
        yield it


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[pulsar.Client]:
    client = pulsar.Client(server.service_url)
    yield client
    client.close()


class Deployed:
    """One function of the file, on one runtime, from the topic `<name>-in` to `<name>-out`."""

    def __init__(self, server: Server, client: pulsar.Client, runtime: str) -> None:
        self.runtime = runtime
        self.name = ""
        self._server = server
        self._client = client

    def __call__(self, class_name: str, **config: Any) -> Deployed:
        self.name = f"{class_name.rpartition('.')[2].lower()}-{self.runtime}"
        full = {"className": class_name, "runtimeEnv": self.runtime, "subscriptionPosition": "Earliest",
                "inputs": [f"{self.name}-in"], "output": f"{self.name}-out", **config}  # fmt: skip
        with Functions(self._server.web_url) as functions:
            functions.create(self.name, CODE, full).raise_for_status()
        return self

    def asked(self, what: str) -> httpx.Response:
        """Answer of a GET below the function, of its first instance where there are several."""
        url = f"{self._server.web_url}/admin/v3/functions/public/default/{self.name}/{what}"
        return httpx.get(url, timeout=30).raise_for_status()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.asked("status").json()["instances"][0]["status"]
        return found

    def logs(self) -> str:
        return self.asked("0/logs").text

    def send(self, *messages: str, **options: Any) -> None:
        producer = self._client.create_producer(f"{self.name}-in")
        for message in messages:
            producer.send(message.encode(), **options)
        producer.close()

    def read(self, topic: str) -> Any:
        """The first message of a topic."""
        [message] = self._read(topic, 1)
        return message

    def outputs(self, *messages: str) -> list[str]:
        """Send messages, and return one output for each."""
        self.send(*messages)
        return [message.data().decode() for message in self._read(f"{self.name}-out", len(messages))]

    def _read(self, topic: str, count: int) -> list[Any]:
        consumer = self._client.subscribe(topic, "test", initial_position=pulsar.InitialPosition.Earliest)
        found = [consumer.receive(RECEIVE_MS) for _ in range(count)]
        consumer.close()
        return found


@pytest.fixture(params=["process", "thread"])
def deployed(server: Server, client: pulsar.Client, request: pytest.FixtureRequest) -> Deployed:
    return Deployed(server, client, request.param)


def written(class_name: str) -> str:
    return f"{MODULE}.{class_name}"


@pytest.mark.parametrize("class_name", [MODULE, written("process")])
def test_a_module_is_its_function_process(deployed: Deployed, class_name: str) -> None:
    assert deployed(class_name).outputs("hi") == ["hi!"]


def test_an_object_lives_as_long_as_its_instance_and_reads_its_config(deployed: Deployed) -> None:
    deployed(written("Greeting"), userConfig={"word": "moin"})
    assert deployed.outputs("ada", "bob") == ["moin ada 1", "moin bob 2"]


def test_the_context_says_where_it_is(deployed: Deployed) -> None:
    name = deployed(written("Describing")).name
    deployed.send("x", partition_key="a key", properties={"colour": "red"})
    assert json.loads(deployed.read(f"{name}-out").data()) == {
        "name": name, "tenant": "public", "namespace": "default", "instance": "0", "topic": f"{TOPIC}{name}-in",
        "properties": {"colour": "red"}, "key": "a key", "has_id": True, "inputs": [f"{name}-in"],
        "output": f"{name}-out",
    }  # fmt: skip


def test_logs_go_to_the_log_topic_and_the_log(deployed: Deployed) -> None:
    topic = f"logs-{deployed.runtime}"
    deployed(written("Logging"), logTopic=topic).outputs("a danger")
    assert b"danger in message" in deployed.read(topic).data()
    wait_for(lambda: "danger in message" in deployed.logs(), "line of the log")


def test_metrics_are_in_the_statistics(deployed: Deployed) -> None:
    deployed(written("Measuring")).outputs("four", "seven")

    def metrics() -> dict[str, float]:
        found: dict[str, float] = deployed.asked("stats").json()["instances"][0]["metrics"]["userMetrics"]
        return found

    wait_for(lambda: metrics().get("user_metric_hits_count") == 2, "the metrics of both messages")
    assert metrics()["user_metric_length_sum"] == 9


def test_values_go_through_a_serde_of_the_package(deployed: Deployed) -> None:
    inputs = {f"mirroring-{deployed.runtime}-in": SERDE}
    deployed(written("Mirroring"), inputs=[], customSerdeInputs=inputs, outputSerdeClassName=SERDE)
    assert deployed.outputs("3/4") == ["4/3"]


def test_messages_are_routed_with_key_properties_and_time(deployed: Deployed) -> None:
    small, large = f"small-{deployed.runtime}", f"large-{deployed.runtime}"
    name = deployed(written("Routing"), userConfig={"small": small, "large": large}).name
    deployed.send("tiny", "enormous", partition_key="k", properties={"a": "b"})
    for topic, content in ((small, b"tiny"), (large, b"enormous")):
        message = deployed.read(topic)
        assert (message.data(), message.partition_key()) == (content, "k")
        assert message.properties() == {"a": "b", "came_from": f"{TOPIC}{name}-in"}
        assert message.event_timestamp() > 0


def test_a_message_is_published_by_a_serde_and_calls_back(deployed: Deployed) -> None:
    topic = f"published-{deployed.runtime}"
    deployed(written("Publishing"), userConfig={"topic": topic}).send("xyz")
    assert deployed.read(topic).data() == b"3/0"
    wait_for(lambda: "published: " in deployed.logs(), "line of the callback")


def test_secrets_are_given_and_unknown_ones_are_none(deployed: Deployed) -> None:
    assert deployed(written("Secretive"), secrets={"user": "ada-the-first"}).outputs("x") == ["ada-the-first:None"]


def test_counters_and_values_are_kept(deployed: Deployed) -> None:
    assert deployed(written("Counting")).outputs("a b a") == ["2"]
    # State goes its way beside the outputs.
    wait_for(lambda: deployed.asked("state/last").json()["stringValue"] == "a b a", "the value in the store")
    assert deployed.asked("state/a").json()["numberValue"] == 2


def test_an_exception_is_in_the_status_and_the_message_comes_again(deployed: Deployed) -> None:
    deployed(written("Failing")).send("x")
    wait_for(lambda: deployed.status()["numUserExceptions"] >= 1, "the exception in the status")
    assert "cannot work" in deployed.status()["latestUserExceptions"][0]["exceptionString"]
    assert deployed.status()["running"]
    assert deployed.status()["numSuccessfullyProcessed"] == 0
