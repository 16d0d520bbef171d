"""Functions between non-persistent topics: what comes while they run is processed, and nothing is kept."""

from __future__ import annotations

from collections.abc import Iterator

import pulsar
import pytest

from tests.support.command import call
from tests.support.functions import Functions
from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow
SOURCE = """
def process(text):
    if text == "bad":
        raise ValueError("no good")
    return text + "!"
"""
IN, OUT = ("non-persistent://public/default/np-in", "non-persistent://public/default/np-out")
COUNT = 800


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("standalone")) as server:
        yield server


@pytest.mark.parametrize("ordering", [False, True])
@pytest.mark.parametrize("guarantees", ["ATLEAST_ONCE", "ATMOST_ONCE"])
def test_what_comes_is_processed(standalone: Server, guarantees: str, ordering: bool) -> None:
    """Each message, though all have the same id: as many as the function has permits for."""
    name = f"np_{guarantees.lower()}_{ordering}".lower()
    client = pulsar.Client(standalone.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    with Functions(standalone.web_url) as functions:
        consumer = client.subscribe(f"{OUT}-{name}", "s")
        config = {
            "inputs": [f"{IN}-{name}"],
            "output": f"{OUT}-{name}",
            "processingGuarantees": guarantees,
            "retainOrdering": ordering,
            "className": f"{name}.process",
        }
        created = functions.create(name, SOURCE, config)
        assert created.status_code in (200, 204), created.text
        wait_for(lambda: functions.status(name)["running"], "the function runs", timeout_s=60)
        producer = client.create_producer(f"{IN}-{name}", batching_enabled=False)
        for number in range(COUNT):
            producer.send_async(("bad" if number == 7 else f"m{number}").encode(), None)
        producer.flush()
        seen = [consumer.receive(20_000).data().decode() for _ in range(COUNT - 1)]
        assert seen == [f"m{number}!" for number in range(COUNT) if number != 7]
        status = functions.status(name)
        assert (status["numReceived"], status["numUserExceptions"]) == (COUNT, 1), status
        functions.delete(name)
    client.close()


def test_topics_commands_take_non_persistent_names(standalone: Server) -> None:
    def cli(*arguments: str) -> str:
        return call(*arguments, admin_url=standalone.web_url, service_url=standalone.service_url).ok().out

    cli("topics", "create-partitioned-topic", "non-persistent://public/default/parted", "-p", "2")
    cli("topics", "create", "non-persistent://public/default/plain")
    listed = cli("topics", "list", "public/default", "-td", "non-persistent")
    assert "non-persistent://public/default/parted-partition-1" in listed
    assert "non-persistent://public/default/plain" in listed
    assert '"msgDropRate": 0.0' in cli("topics", "stats", "non-persistent://public/default/plain")
    assert '"numberOfEntries": 0' in cli("topics", "stats-internal", "non-persistent://public/default/plain")
    cli("topics", "unload", "non-persistent://public/default/plain")
    assert "plain" not in cli("topics", "list", "public/default", "-td", "non-persistent")
    cli("topics", "delete-partitioned-topic", "non-persistent://public/default/parted")
    refused = call("topics", "terminate", "non-persistent://public/default/plain", admin_url=standalone.web_url)
    refused.refused("Need to provide a persistent topic name")
