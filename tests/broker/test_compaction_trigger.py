"""Compaction that nobody asks for: a topic's threshold, its namespace's, the broker's, in this order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import magnetar
import pytest
from magnetar.client.config import ReaderConfig
from magnetar.wire.message_id import EARLIEST

from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

NAMESPACE = "public/compacted"
THRESHOLD = 20_000
ENTRY_BYTES_MAX = 1100  # of a message of one kilobyte with its key and metadata
ALWAYS = 1
SETTINGS = f"""\
brokerServiceCompactionMonitorIntervalInSeconds: 0.1
brokerServiceCompactionThresholdInBytes: {THRESHOLD}
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("broker")
    (directory / "broker.yml").write_text(SETTINGS)
    with running("broker", directory, "--config", str(directory / "broker.yml")) as server:
        with httpx.Client(base_url=f"{server.web_url}/admin/v2/", timeout=60) as admin:
            admin.put(f"namespaces/{NAMESPACE}").raise_for_status()
        yield server


@pytest.fixture
def admin(broker: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{broker.web_url}/admin/v2/", timeout=60) as client:
        yield client
        client.delete(f"namespaces/{NAMESPACE}/compactionThreshold").raise_for_status()


def publish(broker: Server, topic: str, kilobytes: int) -> None:
    """Write so much under two keys."""
    with magnetar.Client(broker.service_url) as client:
        producer = client.create_producer(f"persistent://{NAMESPACE}/{topic}")
        for number in range(kilobytes):
            producer.send(b"%04d" % number + bytes(1020), key=f"k{number % 2}")


def status(admin: httpx.Client, topic: str) -> str:
    return str(admin.get(f"persistent/{NAMESPACE}/{topic}/compaction").raise_for_status().json()["status"])


def wait_until_compacted(admin: httpx.Client, topic: str) -> None:
    wait_for(lambda: status(admin, topic) == "SUCCESS", f"compaction of {topic}")


def compacted(broker: Server, topic: str) -> list[bytes]:
    with magnetar.Client(broker.service_url) as client:
        reader = client.create_reader(f"persistent://{NAMESPACE}/{topic}", EARLIEST, ReaderConfig(read_compacted=True))
        found: list[bytes] = []
        while reader.has_message_available():
            found.append(reader.read_next(30_000).data[:4])
        return found


def set_for_topic(admin: httpx.Client, topic: str, value: Any) -> httpx.Response:
    return admin.post(f"persistent/{NAMESPACE}/{topic}/compactionThreshold", json=value)


def test_topic_is_compacted_once_more_than_the_brokers_threshold_waits(broker: Server, admin: httpx.Client) -> None:
    publish(broker, "broker", 10)
    publish(broker, "other", 30)
    wait_until_compacted(admin, "other")
    # It began once the threshold was passed or later: up to there, one of each key is left.
    left = compacted(broker, "other")
    assert len(left) <= 2 + 30 - THRESHOLD // ENTRY_BYTES_MAX
    assert left[-1] == b"0029"
    # Both were looked at in the same turns: what is below the threshold was left alone.
    assert status(admin, "broker") == "NOT_RUN"
    publish(broker, "broker", 15)
    wait_until_compacted(admin, "broker")


def test_threshold_of_the_namespace_goes_before_the_brokers(broker: Server, admin: httpx.Client) -> None:
    admin.put(f"namespaces/{NAMESPACE}/compactionThreshold", json=100_000).raise_for_status()
    publish(broker, "patient", 40)
    set_for_topic(admin, "patient", 0).raise_for_status()
    admin.put(f"namespaces/{NAMESPACE}/compactionThreshold", json=ALWAYS).raise_for_status()
    publish(broker, "eager", 2)
    wait_until_compacted(admin, "eager")
    assert status(admin, "patient") == "NOT_RUN"


def test_threshold_of_the_topic_goes_before_its_namespaces(broker: Server, admin: httpx.Client) -> None:
    admin.put(f"namespaces/{NAMESPACE}/compactionThreshold", json=ALWAYS).raise_for_status()
    admin.put(f"persistent/{NAMESPACE}/parts/partitions", json=2).raise_for_status()
    admin.put(f"persistent/{NAMESPACE}/never").raise_for_status()
    for topic in ("parts", "never"):
        set_for_topic(admin, topic, 0).raise_for_status()
    for topic in ("parts-partition-0", "parts-partition-1", "never", "always"):
        publish(broker, topic, 5)
    wait_until_compacted(admin, "always")
    assert [status(admin, topic) for topic in ("parts-partition-0", "never")] == ["NOT_RUN", "NOT_RUN"]
    admin.delete(f"persistent/{NAMESPACE}/parts/compactionThreshold").raise_for_status()
    wait_until_compacted(admin, "parts-partition-0")
    wait_until_compacted(admin, "parts-partition-1")
    assert status(admin, "never") == "NOT_RUN"


def test_threshold_of_a_topic_reads_as_it_was_written(broker: Server, admin: httpx.Client) -> None:
    admin.put(f"persistent/{NAMESPACE}/kept").raise_for_status()
    path = f"persistent/{NAMESPACE}/kept/compactionThreshold"
    assert admin.get(path).content == b""
    assert admin.get(path, params={"applied": "true"}).json() == THRESHOLD
    assert set_for_topic(admin, "kept", 123_456).status_code == 204
    assert admin.get(path).json() == 123_456
    refused = set_for_topic(admin, "kept", -1)
    assert (refused.status_code, refused.json()["reason"]) == (412, "Invalid value for compactionThreshold")
    assert admin.get(path).json() == 123_456
    assert admin.delete(path).status_code == 204
    assert admin.get(path).content == b""
