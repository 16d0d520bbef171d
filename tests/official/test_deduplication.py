"""What a producer sends again, by the official client: stored once, on our broker and on Apache Pulsar alike."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pulsar
import pytest

from tests.broker.raw import Raw
from tests.support.pulsar import Broker
from tests.support.waiting import wait_for

TIMEOUT_MS = 10_000


def rest(topic: str) -> str:
    return topic.replace("://", "/")


def switch_on(admin: httpx.Client, topic: str) -> None:
    """By the policy of the topic, read back."""
    assert admin.put(rest(topic)).status_code in (204, 409)
    path = f"{rest(topic)}/deduplicationEnabled"
    admin.post(path, json=True).raise_for_status()
    wait_for(lambda: admin.get(path).text == "true", "the policy")
    wait_for_status(admin, topic, "Enabled")


def wait_for_status(admin: httpx.Client, topic: str, status: str) -> None:
    wait_for(
        lambda: admin.get(f"{rest(topic)}/stats").json().get("deduplicationStatus") == status, f"{status} on {topic}"
    )


@pytest.fixture
def deduplicated(admin: httpx.Client, topic: str) -> str:
    switch_on(admin, topic)
    return topic


def content(client: pulsar.Client, topic: str) -> list[bytes]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(TIMEOUT_MS).data())
    reader.close()
    return found


def test_ids_sent_again_are_stored_once(client: pulsar.Client, deduplicated: str) -> None:
    first = client.create_producer(deduplicated, producer_name="p", batching_enabled=False)
    assert first.last_sequence_id() == -1
    for number in range(5):
        first.send(b"%d" % number, sequence_id=number * 10)
    assert first.last_sequence_id() == 40
    first.close()

    second = client.create_producer(deduplicated, producer_name="p", batching_enabled=False)
    assert second.last_sequence_id() == 40
    repeated = second.send(b"again", sequence_id=40)
    assert (repeated.ledger_id(), repeated.entry_id()) == (-1, -1)
    second.send(b"new")
    assert second.last_sequence_id() == 41
    second.close()
    assert content(client, deduplicated) == [b"0", b"1", b"2", b"3", b"4", b"new"]


def test_a_program_that_begins_again_at_a_number_of_its_own_repeats_nothing(
    client: pulsar.Client, deduplicated: str
) -> None:
    # The client takes 0 and -1 for no number given.
    for begin, upto in ((1, 7), (3, 12), (1, 12), (11, 15)):
        producer = client.create_producer(
            deduplicated, producer_name="file", initial_sequence_id=begin, batching_enabled=False
        )
        for number in range(begin, upto):
            producer.send(b"%d" % number, sequence_id=number)
        producer.close()
    assert content(client, deduplicated) == [b"%d" % number for number in range(1, 15)]


def test_a_batch_sent_again_is_dropped_as_a_whole(client: pulsar.Client, deduplicated: str) -> None:
    for _ in range(2):
        producer = client.create_producer(
            deduplicated, producer_name="p", batching_enabled=True,
            batching_max_messages=10, batching_max_publish_delay_ms=60_000,
        )  # fmt: skip
        for number in range(1, 31):
            producer.send_async(b"%d" % number, lambda *_: None, sequence_id=number)
        producer.flush()
        assert producer.last_sequence_id() == 30
        producer.close()
    assert content(client, deduplicated) == [b"%d" % number for number in range(1, 31)]


def test_chunks_sent_again_make_no_second_message(client: pulsar.Client, deduplicated: str) -> None:
    big = bytes(range(256)) * 50_000
    consumer = client.subscribe(deduplicated, "s", initial_position=pulsar.InitialPosition.Earliest)
    for _ in range(2):
        producer = client.create_producer(
            deduplicated, producer_name="p", batching_enabled=False, chunking_enabled=True
        )
        producer.send(big, sequence_id=1)
        producer.send(b"end", sequence_id=2)
        producer.close()
    assert [consumer.receive(TIMEOUT_MS).data() for _ in range(2)] == [big, b"end"]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)
    consumer.close()


def test_an_unload_forgets_nothing(client: pulsar.Client, admin: httpx.Client, deduplicated: str) -> None:
    producer = client.create_producer(deduplicated, producer_name="p", batching_enabled=False)
    for number in range(5):
        producer.send(b"%d" % number)
    producer.close()
    admin.put(f"{rest(deduplicated)}/unload").raise_for_status()
    # Apache Pulsar 4.0 lets producers in while it still reads again what it has stored, by a policy of the topic.
    wait_for_status(admin, deduplicated, "Enabled")
    producer = client.create_producer(deduplicated, producer_name="p", batching_enabled=False)
    assert producer.last_sequence_id() == 4
    producer.send(b"4", sequence_id=4)
    producer.close()
    assert len(content(client, deduplicated)) == 5
    assert admin.get(f"{rest(deduplicated)}/stats").json()["subscriptions"] == {}
    assert "pulsar.dedup" in admin.get(f"{rest(deduplicated)}/internalStats").json()["cursors"]


def test_a_producer_that_is_there_when_it_is_switched_on_and_off(
    client: pulsar.Client, admin: httpx.Client, topic: str
) -> None:
    producer = client.create_producer(topic, producer_name="p", batching_enabled=False)
    producer.send(b"a", sequence_id=5)
    switch_on(admin, topic)
    # What was stored before it was switched on does not count.
    producer.send(b"b", sequence_id=5)
    producer.send(b"c", sequence_id=5)
    admin.delete(f"{rest(topic)}/deduplicationEnabled").raise_for_status()
    wait_for_status(admin, topic, "Disabled")
    producer.send(b"d", sequence_id=5)
    switch_on(admin, topic)
    producer.close()
    producer = client.create_producer(topic, producer_name="p", batching_enabled=False)
    assert producer.last_sequence_id() == -1
    producer.close()
    assert content(client, topic) == [b"a", b"b", b"d"]


def test_a_policy_holds_for_every_partition(client: pulsar.Client, admin: httpx.Client, topic: str) -> None:
    admin.put(f"{rest(topic)}/partitions", json=2).raise_for_status()
    path = f"{rest(topic)}/deduplicationEnabled"
    assert admin.post(path, json=True).status_code == 204
    wait_for(lambda: admin.get(path).text == "true", "the policy")
    assert admin.get(f"{rest(topic)}-partition-0/deduplicationEnabled").status_code == 412
    for partition in (0, 1):
        name = f"{topic}-partition-{partition}"
        for _ in range(2):
            producer = client.create_producer(name, producer_name="p", batching_enabled=False)
            producer.send(b"x", sequence_id=7)
            producer.close()
        assert content(client, name) == [b"x"]
        wait_for_status(admin, name, "Enabled")


@pytest.fixture
def namespace(admin: httpx.Client, topic: str) -> Iterator[str]:
    name = topic.rsplit("/", 1)[1][-30:].strip("-")
    admin.put(f"namespaces/public/{name}").raise_for_status()
    yield name
    admin.delete(f"namespaces/public/{name}", params={"force": True})


def test_the_word_of_a_topic_goes_before_that_of_its_namespace(
    client: pulsar.Client, admin: httpx.Client, namespace: str
) -> None:
    policy = f"namespaces/public/{namespace}/deduplication"
    assert admin.get(policy).text == ""
    assert admin.post(policy, json=True).status_code == 204
    assert admin.get(policy).json() is True
    on, off = (f"persistent://public/{namespace}/{word}" for word in ("on", "off"))
    for name in (on, off):
        admin.put(rest(name)).raise_for_status()
    path = f"{rest(off)}/deduplicationEnabled"
    assert admin.get(path, params={"applied": True}).json() is True
    assert admin.get(path).text == ""
    assert admin.post(path, json=False).status_code == 204
    wait_for(lambda: admin.get(path, params={"applied": True}).text == "false", "the policy")
    wait_for_status(admin, on, "Enabled")
    wait_for_status(admin, off, "Disabled")
    for name in (on, off):
        producer = client.create_producer(name, producer_name="p", batching_enabled=False)
        producer.send(b"x", sequence_id=7)
        producer.send(b"x", sequence_id=7)
        producer.close()
    assert [len(content(client, name)) for name in (on, off)] == [1, 2]
    assert admin.delete(policy).status_code == 204
    assert admin.get(policy).text == ""
    wait_for_status(admin, on, "Disabled")


def test_a_deleted_topic_leaves_neither_policy_nor_ids(
    client: pulsar.Client, admin: httpx.Client, deduplicated: str
) -> None:
    producer = client.create_producer(deduplicated, producer_name="p", batching_enabled=False)
    producer.send(b"x", sequence_id=7)
    producer.close()
    admin.delete(rest(deduplicated), params={"force": True}).raise_for_status()
    admin.put(rest(deduplicated)).raise_for_status()
    assert admin.get(f"{rest(deduplicated)}/deduplicationEnabled").text == ""
    switch_on(admin, deduplicated)
    producer = client.create_producer(deduplicated, producer_name="p", batching_enabled=False)
    assert producer.last_sequence_id() == -1
    producer.close()


@pytest.mark.parametrize("body", [b'"x"', b"{}", b"[]"])
def test_a_policy_that_is_no_truth_is_refused(admin: httpx.Client, deduplicated: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    path = f"{rest(deduplicated)}/deduplicationEnabled"
    assert admin.post(path, content=body, headers=headers).status_code == 400
    assert admin.get(path).json() is True
    assert admin.post(f"{rest(deduplicated)}-absent/deduplicationEnabled", json=True).status_code == 404


def test_ids_that_leave_gaps_and_fill_63_bits(broker_port: int, deduplicated: str) -> None:
    """Entries as a function's output sends them: one id for the whole entry, first and highest alike."""

    async def talk() -> list[tuple[int, bool]]:
        raw = await Raw.connected(broker_port)
        await raw.request("LOOKUP", topic=deduplicated, request_id=1)
        await raw.request("PRODUCER", topic=deduplicated, producer_id=1, request_id=2, producer_name="f")
        found = []
        for number in (1 << 30, 1 << 30, 1 << 30 | 5 << 10 | 3, 1 << 62, 1 << 62, (1 << 63) - 1, (1 << 63) - 1):
            raw.send_message(
                b"x", sequence_id=number, highest_sequence_id=number,
                metadata={"producer_name": "f", "highest_sequence_id": number},
            )  # fmt: skip
            receipt = (await raw.receive()).command.send_receipt
            is_stored = receipt.message_id.ledgerId < 1 << 63
            found.append((receipt.sequence_id, is_stored))
        await raw.close()
        return found

    answers = asyncio.run(talk())
    assert [is_stored for _, is_stored in answers] == [True, False, True, True, False, True, False]


@pytest.fixture
def broker_port(broker: Broker) -> int:
    return int(broker.service_url.rsplit(":", 1)[1])
