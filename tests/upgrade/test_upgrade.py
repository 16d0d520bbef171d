"""Data of versions that have landed opens in this one: what they wrote, exactly, and it goes on from there.

`write_fixture.py` says what is in the archives and makes new ones.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from magnetar.spark.jobs.plans import PlanStore
from magnetar.state.client import TableClient

from tests.support.servers import Server, running
from tests.upgrade import write_fixture as written

pytestmark = pytest.mark.slow

ARCHIVES = sorted(Path(__file__).parent.glob("data-*.tar.xz"))


class Opened:
    """An archive, opened by this version.

    Attributes:
        directory: the data directory.
        client: connected to the broker.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.directory = server.directory / "data"
        self.client = pulsar.Client(server.service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, "/dev/null"))
        self._web = httpx.Client(base_url=server.web_url, timeout=60)

    def close(self) -> None:
        self.client.close()
        self._web.close()

    def get(self, path: str) -> Any:
        return self._web.get(f"/admin/{path}").raise_for_status().json()

    def all_of(self, topic: str) -> list[pulsar.Message]:
        reader = self.client.create_reader(topic, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(30_000))
        reader.close()
        return found

    def texts_of(self, topic: str) -> list[str]:
        return [message.data().decode() for message in self.all_of(topic)]


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    directory = tmp_path_factory.mktemp("upgrade")
    with tarfile.open(request.param) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian's Python 3.11.2 has none
        tar.extractall(directory / "data")
    with running("standalone", directory) as server, contextlib.closing(Opened(server)) as it:
        yield it


def test_there_is_data_of_the_versions_before() -> None:
    assert "data-d83fe40.tar.xz" in [path.name for path in ARCHIVES]


def test_messages_are_all_there_in_order(opened: Opened) -> None:
    messages = opened.all_of(written.PLAIN)
    assert [message.data().decode() for message in messages] == written.PLAIN_MESSAGES
    assert {message.properties()["of"] for message in messages} == {"the old version"}
    assert messages[3].partition_key() == "key of plain 3"
    assert opened.texts_of(written.BATCHED) == written.BATCHED_MESSAGES


@pytest.mark.parametrize(
    ("topic", "texts", "acknowledged"),
    [
        (written.PLAIN, written.PLAIN_MESSAGES, written.PLAIN_ACKNOWLEDGED),
        (written.BATCHED, written.BATCHED_MESSAGES, written.BATCHED_ACKNOWLEDGED),
    ],
)
def test_subscription_gets_what_it_had_not_acknowledged(
    opened: Opened, topic: str, texts: list[str], acknowledged: set[int]
) -> None:
    wanted = [text for number, text in enumerate(texts) if number not in acknowledged]
    consumer = opened.client.subscribe(topic, "holes", consumer_type=pulsar.ConsumerType.Shared)
    messages = [consumer.receive(30_000) for _ in wanted]
    assert [message.data().decode() for message in messages] == wanted
    for message in messages:
        consumer.acknowledge(message)
    opened.client.create_producer(topic).send(b"new")
    assert consumer.receive(30_000).data() == b"new"
    consumer.close()


def test_deduplication_knows_the_ids_of_before(opened: Opened) -> None:
    last = written.ONCE_IDS[-1]
    producer = opened.client.create_producer(written.ONCE, producer_name=written.ONCE_PRODUCER, batching_enabled=False)
    assert producer.last_sequence_id() == last
    for number in (*written.ONCE_IDS, last + 1):
        producer.send(f"once {number}".encode(), sequence_id=number)
    assert opened.texts_of(written.ONCE) == [f"once {number}" for number in (*written.ONCE_IDS, last + 1)]


def test_policies_and_topics_are_what_they_were(opened: Opened) -> None:
    assert opened.get("v2/namespaces/public/kept/retention") == written.RETENTION
    assert opened.get("v2/persistent/public/default/parts/partitions")["partitions"] == 3
    topics = opened.get("v2/persistent/public/default")
    assert written.ENDED in topics
    assert written.GONE not in topics
    assert opened.texts_of(written.ENDED) == ["before"]
    with pytest.raises(pulsar.PulsarException):
        opened.client.create_producer(written.ENDED).send(b"after")


def test_functions_go_on_with_their_state(opened: Opened) -> None:
    assert sorted(opened.get("v3/functions/public/default")) == sorted(written.FUNCTIONS)
    state = "v3/functions/public/default/{}/state/{}"
    for word, count in written.COUNTED.items():
        assert opened.get(state.format(written.COUNT, word))["numberValue"] == count
    assert opened.get(state.format(written.COUNT, "last"))["stringValue"] == written.COUNT_LINES[-1]
    assert opened.get(state.format(written.EXACT, "seen"))["numberValue"] == len(written.EXACT_LINES)
    check_output(opened, written.COUNT, "four two", [line.upper() for line in (*written.COUNT_LINES, "four two")])
    check_output(opened, written.EXACT, "new", [f"{line}!" for line in (*written.EXACT_LINES, "new")])
    assert opened.get(state.format(written.COUNT, "two"))["numberValue"] == written.COUNTED["two"] + 1
    assert opened.get(state.format(written.EXACT, "seen"))["numberValue"] == len(written.EXACT_LINES) + 1


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the pickle is of Python 3.11, and others cannot read it")
def test_pickled_function_goes_on(opened: Opened) -> None:
    check_output(opened, written.FARE, "30", [written.fare_of(km) for km in (*written.RIDES, 30)])


def check_output(opened: Opened, name: str, text: str, expected: list[str]) -> None:
    """Send a function one more message, and look at all that it ever put out."""
    consumer = opened.client.subscribe(written.outputs(name), "writer")
    opened.client.create_producer(written.inputs(name)).send(text.encode())
    assert consumer.receive(60_000).data().decode() == expected[-1]
    assert opened.texts_of(written.outputs(name)) == expected
    consumer.close()


def test_plan_of_a_spark_function_is_read_back(opened: Opened) -> None:
    with contextlib.closing(TableClient(str(opened.server.addresses["stateStorageServiceUrl"]))) as tables:
        record = PlanStore(tables, written.SPARK_TABLE, incarnation=written.SPARK_LIFE, owner="another").claim()
    assert record.open_plan == written.SPARK_PLAN
    assert record.owner == "a-driver"


def test_directory_has_the_format_of_this_version_and_a_copy_of_what_was_rewritten(opened: Opened) -> None:
    storage = opened.directory / "storage"
    assert (storage / "catalogue").read_bytes().startswith(b"MAGNETAR-CATALOGUE-3 ")
    head = json.loads((storage / "before-format-3" / "catalogue").read_bytes().splitlines()[1])
    assert "journal_key" not in head
    assert "from format 1 to 3" in opened.server.log_file.read_text()
