from __future__ import annotations

import threading
from typing import Any

import pytest
from magnetar.client import (
    EARLIEST,
    NO_VALUE,
    Base64Key,
    ClientConfig,
    ConsumerConfig,
    Message,
    MessageId,
    ProducerConfig,
)
from magnetar.client.blocking import Client
from magnetar.errors import ClosedError, InvalidConfig, MagnetarError, OperationTimeout, QueueFull

from tests.client.clusters import Cluster

pytestmark = pytest.mark.slow


@pytest.fixture
def blocking(cluster: Cluster) -> Any:
    with Client(cluster.service_url, ClientConfig(operation_timeout_s=60)) as it:
        yield it


def test_messages_go_there_and_back(blocking: Client, topic: str) -> None:
    consumer = blocking.subscribe(topic, "s", ConsumerConfig(negative_ack_delay_ms=50, type="Shared"))
    producer = blocking.create_producer(topic, ProducerConfig(name="p1"))
    assert (producer.topic, producer.name, consumer.subscription_name) == (topic, "p1", "s")
    message_id = producer.send(b"hello", key="k", properties={"a": "b"}, event_time_ms=5, sequence_id=7)
    message = consumer.receive(30_000)
    assert (message.data, message.key, message.properties, message.event_time_ms) == (b"hello", "k", {"a": "b"}, 5)
    assert (message.message_id, message.sequence_id, producer.last_sequence_id) == (message_id, 7, 7)
    consumer.negative_acknowledge(message)
    again = consumer.receive(30_000)
    assert again.redelivery_count == 1
    consumer.acknowledge(again)
    with pytest.raises(OperationTimeout, match=r"no message .* within 0\.1 s"):
        consumer.receive(100)
    assert producer.is_connected
    assert consumer.is_connected
    consumer.close()
    producer.close()


def test_a_blocking_send_does_not_wait_for_its_batch_to_fill(blocking: Client, topic: str) -> None:
    producer = blocking.create_producer(topic, ProducerConfig(batch_max_delay_ms=20_000, send_timeout_ms=15_000))
    assert [producer.send(b"x").batch_size for _ in range(3)] == [1, 1, 1]


def test_many_messages_are_handed_over_without_waiting(blocking: Client, topic: str) -> None:
    producer = blocking.create_producer(topic, ProducerConfig(block_if_queue_full=True))
    results: list[tuple[MagnetarError | None, MessageId | None]] = []
    for index in range(5000):
        producer.send_async(b"%d" % index, lambda error, message_id: results.append((error, message_id)))
    producer.send_async(b"last")
    producer.flush()
    ids = [message_id for _, message_id in results]
    assert len(ids) == 5000
    assert all(error is None for error, _ in results)
    assert ids == sorted(ids)  # type: ignore[type-var]
    consumer = blocking.subscribe(topic, "s", ConsumerConfig(initial_position="Earliest"))
    messages: list[Message] = []
    while len(messages) < 5001:
        messages += consumer.batch_receive(700, 5000)
    assert [m.data for m in messages] == [b"%d" % index for index in range(5000)] + [b"last"]
    consumer.acknowledge_cumulative(messages[-1])
    assert consumer.batch_receive(10, 50) == []


def test_no_value_is_not_an_empty_one_and_a_key_may_be_bytes(blocking: Client, topic: str) -> None:
    alone = blocking.create_producer(topic, ProducerConfig(batching=False))
    for producer in (alone, blocking.create_producer(topic)):
        producer.send(NO_VALUE)
        producer.send(b"", key="a2V5")
        producer.send_async(NO_VALUE, key=Base64Key("a2V5"))
        producer.flush()
    consumer = blocking.subscribe(topic, "s", ConsumerConfig(initial_position="Earliest"))
    found: list[tuple[bytes, str | None, bool, bool, bool]] = []
    for _ in range(6):
        message = consumer.receive(10_000)
        metadata = message.entry.metadata
        header: Any = (
            metadata if message.entry.headers is None else message.entry.headers[max(message.message_id.batch_index, 0)]
        )
        flags = (header.null_value, header.partition_key_b64_encoded, metadata.partition_key_b64_encoded)
        found.append((message.data, message.key, *flags))
    wanted = [(b"", None, True, False, False), (b"", "a2V5", False, False, False), (b"", "a2V5", True, True, True)]
    assert found == wanted * 2
    consumer.close()


def test_threads_share_a_producer(blocking: Client, topic: str) -> None:
    producer = blocking.create_producer(topic, ProducerConfig(block_if_queue_full=True, max_pending_messages=7))
    done: list[MagnetarError | None] = []

    def produce(name: int) -> None:
        for index in range(300):
            producer.send_async(b"%d/%d" % (name, index), lambda error, _: done.append(error))

    threads = [threading.Thread(target=produce, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush()
    assert done == [None] * 1200
    reader = blocking.create_reader(topic, EARLIEST)
    seen: dict[bytes, int] = {}
    while reader.has_message_available():
        name, index = reader.read_next(30_000).data.split(b"/")
        assert int(index) == seen.get(name, -1) + 1
        seen[name] = int(index)
    assert set(seen.values()) == {299}
    reader.close()


def test_a_full_queue_is_refused(blocking: Client, topic: str) -> None:
    producer = blocking.create_producer(topic, ProducerConfig(max_pending_messages=2, batch_max_delay_ms=60_000))
    errors: list[MagnetarError | None] = []
    for _ in range(2):
        producer.send_async(b"x", lambda error, _: errors.append(error))
    with pytest.raises(QueueFull, match="max_pending_messages=2"):
        producer.send_async(b"y")
    producer.flush()
    assert errors == [None, None]
    producer.send_async(b"y", lambda error, _: errors.append(error), sequence_id=0)
    producer.flush()
    assert isinstance(errors[2], InvalidConfig)


def test_consumers_and_readers_move(blocking: Client, topic: str) -> None:
    producer = blocking.create_producer(topic, ProducerConfig(batching=False))
    ids = [producer.send(b"%d" % index) for index in range(3)]
    consumer = blocking.subscribe(topic, "s")
    assert consumer.is_active
    consumer.seek(EARLIEST)
    assert [consumer.receive(30_000).data for _ in range(3)] == [b"0", b"1", b"2"]
    consumer.redeliver_unacknowledged_messages()
    assert consumer.receive(30_000).data == b"0"
    assert consumer.get_last_message_id() == ids[2]
    reader = blocking.create_reader(topic, ids[0])
    assert (reader.topic, reader.is_connected) == (topic, True)
    assert reader.read_next(30_000).data == b"1"
    reader.seek(ids[2], inclusive=True)
    assert reader.read_next(30_000).data == b"2"
    consumer.unsubscribe()
    assert blocking.get_topic_partitions(topic) == [topic]


def test_a_closed_client_refuses_and_ends_its_thread(cluster: Cluster, topic: str) -> None:
    before = threading.active_count()
    client = Client(cluster.service_url)
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s")
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            consumer.receive()
        except ClosedError as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    client.close()
    thread.join(60)
    assert len(failures) == 1
    with pytest.raises(ClosedError, match="the client is closed"):
        producer.send(b"x")
    with pytest.raises(ClosedError):
        producer.send_async(b"x")
    client.close()
    assert threading.active_count() == before


def test_a_blocking_call_on_the_clients_own_thread_is_refused(blocking: Client, topic: str) -> None:
    producer = blocking.create_producer(topic)
    caught: list[BaseException] = []

    def callback(_error: MagnetarError | None, _message_id: MessageId | None) -> None:
        try:
            producer.send(b"again")
        except RuntimeError as error:
            caught.append(error)

    producer.send_async(b"x", callback)
    producer.flush()
    assert "would deadlock" in str(caught[0])


def test_a_bad_service_url_starts_nothing() -> None:
    before = threading.active_count()
    with pytest.raises(InvalidConfig, match="scheme http"):
        Client("http://localhost:8080")
    assert threading.active_count() == before
