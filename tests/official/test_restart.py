"""The official client stays connected through the death and return of our broker, and loses nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from tests.official.conftest import SERVER
from tests.official.talk import RECEIVE_MS, datas, is_silent, receive_all, send_all
from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("MAGNETAR_TEST_PULSAR_URL" in os.environ, reason="restarts only a broker of its own"),
]

TOPIC = "persistent://public/default/restarted"


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    with running("broker", tmp_path) as it:
        request.session.stash[SERVER] = it
        yield it


@pytest.fixture
def client(server: Server, official_log: pulsar.FileLogger) -> Iterator[pulsar.Client]:
    client = pulsar.Client(server.service_url, logger=official_log, operation_timeout_seconds=10)
    yield client
    client.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize(
    "kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover, pulsar.ConsumerType.Shared]
)
def test_client_goes_on_after_a_restart(
    server: Server, client: pulsar.Client, how: str, kind: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(TOPIC, "s", consumer_type=kind)
    producer = client.create_producer(TOPIC, batching_enabled=True)
    send_all(producer, [b"%d" % i for i in range(100)])
    assert datas(receive_all(consumer, 50)) == [b"%d" % i for i in range(50)]
    unacknowledged = receive_all(consumer, 10, ack=False)
    assert len(unacknowledged) == 10
    getattr(server, how)()
    server.restart()
    send_all(producer, [b"%d" % i for i in range(100, 110)])
    # What was open comes again; so may what lay in the client's queue, and acknowledgements that it had not sent yet.
    firsts: dict[int, None] = {}
    while not set(range(50, 110)) <= firsts.keys():
        message = consumer.receive(RECEIVE_MS)
        consumer.acknowledge(message)
        firsts.setdefault(int(message.data()))
    assert [number for number in firsts if number >= 100] == list(range(100, 110))


def test_nothing_is_lost_when_the_broker_dies_under_a_running_producer(server: Server, client: pulsar.Client) -> None:
    client.subscribe(TOPIC, "keep").close()
    producer = client.create_producer(TOPIC, max_pending_messages=500, block_if_queue_full=True)
    receipted: list[int] = []
    enough = threading.Event()
    total = 6000

    def on_receipt(number: int, result: Any) -> None:
        assert result == pulsar.Result.Ok
        receipted.append(number)
        if len(receipted) == total:
            enough.set()

    def send() -> None:
        for number in range(total):
            producer.send_async(b"%d" % number, lambda result, _id, number=number: on_receipt(number, result))

    sender = threading.Thread(target=send)
    sender.start()
    wait_for(lambda: len(receipted) > 1000, "the first thousand receipts")
    server.kill()
    server.restart()
    sender.join(30)
    assert enough.wait(30), f"{len(receipted)} receipts"
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
    stored = []
    while reader.has_message_available():
        stored.append(int(reader.read_next(RECEIVE_MS).data()))
    firsts = list(dict.fromkeys(stored))
    assert firsts == list(range(total))


def test_topics_partitions_and_subscriptions_survive(server: Server, client: pulsar.Client) -> None:
    with httpx.Client(base_url=f"{server.web_url}/admin/v2/") as admin:
        admin.put("persistent/public/default/parts/partitions", json=4).raise_for_status()
        client.create_producer("plain").close()
        client.subscribe("plain", "idle").close()
        before = sorted(admin.get("persistent/public/default").json())
        server.kill()
        server.restart()
        assert sorted(admin.get("persistent/public/default").json()) == before
        assert "persistent://public/default/parts-partition-3" in before
        assert admin.get("persistent/public/default/parts/partitions").json()["partitions"] == 4
        assert admin.get("persistent/public/default/plain/subscriptions").json() == ["idle"]
    producer = client.create_producer("plain")
    producer.send(b"x")
    consumer = client.subscribe("plain", "idle")
    assert datas(receive_all(consumer, 1)) == [b"x"]
    assert is_silent(consumer)
