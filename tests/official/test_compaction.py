"""Compacted topics, as the official client reads them."""

from __future__ import annotations

import httpx
import pulsar
import pytest

from tests.official.talk import RECEIVE_MS
from tests.support.waiting import wait_for

EARLIEST = pulsar.InitialPosition.Earliest


def compact(admin: httpx.Client, topic: str) -> None:
    path = f"{topic.replace('://', '/')}/compaction"
    admin.put(path).raise_for_status()

    def is_done() -> bool:
        status = admin.get(path).json()
        assert status["status"] != "ERROR", status
        return bool(status["status"] == "SUCCESS")

    wait_for(is_done, "end of the compaction")


def read(reader: pulsar.Reader) -> list[tuple[str, bytes]]:
    found = []
    while reader.has_message_available():
        message = reader.read_next(RECEIVE_MS)
        if message.data():  # of a batch, what compaction took out comes as empty messages
            found.append((message.partition_key(), message.data()))
    return found


@pytest.fixture(params=[False, True], ids=["single", "batched"])
def producer(request: pytest.FixtureRequest, client: pulsar.Client, topic: str) -> pulsar.Producer:
    return client.create_producer(
        topic, batching_enabled=request.param, batching_max_messages=7, batching_max_publish_delay_ms=100
    )


def write(producer: pulsar.Producer, first: int, behind: int) -> None:
    for number in range(first, behind):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % 3}")
    producer.flush()


def test_a_compacted_reader_sees_the_last_of_each_key_and_what_came_after(
    client: pulsar.Client, admin: httpx.Client, topic: str, producer: pulsar.Producer
) -> None:
    write(producer, 0, 30)
    compact(admin, topic)
    write(producer, 30, 33)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    expected = [(f"k{number % 3}", b"%d" % number) for number in range(27, 33)]
    assert read(reader) == expected
    reader.seek(pulsar.MessageId.earliest)
    assert read(reader) == expected
    plain = client.create_reader(topic, pulsar.MessageId.earliest)
    assert [value for _, value in read(plain)] == [b"%d" % number for number in range(33)]


def test_a_compacted_topic_can_be_read_after_its_originals_are_gone(
    client: pulsar.Client, admin: httpx.Client, topic: str, producer: pulsar.Producer
) -> None:
    write(producer, 0, 30)
    compact(admin, topic)
    producer.close()
    path = topic.replace("://", "/")
    admin.put(f"{path}/unload").raise_for_status()  # closes the ledger, so that it may go

    def is_gone() -> bool:
        admin.post(f"{path}/trim").raise_for_status()
        return all(not ledger["entries"] for ledger in admin.get(f"{path}/internalStats").json()["ledgers"])

    wait_for(is_gone, "trimmed topic")
    expected = [(f"k{number % 3}", b"%d" % number) for number in range(27, 30)]
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    assert read(reader) == expected
    consumer = client.subscribe(topic, "durable", is_read_compacted=True, initial_position=EARLIEST)
    seen: list[tuple[str, bytes]] = []
    while len(seen) < 3:
        message = consumer.receive(RECEIVE_MS)
        if message.data():
            seen.append((message.partition_key(), message.data()))
        consumer.acknowledge_cumulative(message)
    assert seen == expected
    client.create_producer(topic).send(b"new", partition_key="k0")
    assert consumer.receive(RECEIVE_MS).data() == b"new"


def test_compacting_again_replaces_the_view(
    client: pulsar.Client, admin: httpx.Client, topic: str, producer: pulsar.Producer
) -> None:
    for first in (0, 30, 60):
        write(producer, first, first + 29)
        compact(admin, topic)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    assert [value for _, value in read(reader)] == [b"86", b"87", b"88"]


def test_a_threshold_of_the_namespace_is_kept(admin: httpx.Client) -> None:
    path = "namespaces/public/default/compactionThreshold"
    assert admin.put(path, json=-1).status_code == 412
    assert admin.put(path, json=100_000_000).status_code == 204
    assert admin.get(path).json() == 100_000_000
    assert admin.delete(path).status_code == 204
