"""The official client stays connected through the death and return of its broker, and loses nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from tests.official.conftest import SERVER
from tests.official.talk import RECEIVE_MS, datas, is_silent, receive_all, send_all
from tests.support.pulsar import BROKERS, Broker, mortal, own_name
from tests.support.servers import running
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]

RETURN_S = 75  # the official client tries again after up to a minute, the longer the broker was away
NO_TIMEOUT = 0  # Apache Pulsar may be away for longer than the 30 s after which the client gives a message up


@pytest.fixture(params=BROKERS)
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Broker]:
    if request.param == "pulsar":
        yield mortal(request.getfixturevalue("mortal_pulsar"))
        return
    with running("broker", tmp_path) as it:
        request.session.stash[SERVER] = it
        yield it


@pytest.fixture
def client(server: Broker, official_log: pulsar.FileLogger) -> Iterator[pulsar.Client]:
    client = pulsar.Client(server.service_url, logger=official_log, operation_timeout_seconds=10)
    yield client
    client.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize(
    "kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover, pulsar.ConsumerType.Shared]
)
def test_client_goes_on_after_a_restart(
    server: Broker, client: pulsar.Client, topic: str, how: str, kind: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    producer = client.create_producer(topic, batching_enabled=True, send_timeout_millis=NO_TIMEOUT)
    send_all(producer, [b"%d" % i for i in range(100)])
    assert datas(receive_all(consumer, 50)) == [b"%d" % i for i in range(50)]
    unacknowledged = receive_all(consumer, 10, ack=False)
    assert len(unacknowledged) == 10
    getattr(server, how)()
    server.restart()
    send_all(producer, [b"%d" % i for i in range(100, 110)], within_s=RETURN_S)
    # What was open comes again; so may what lay in the client's queue, and acknowledgements that it had not sent yet.
    firsts: dict[int, None] = {}
    while not set(range(50, 110)) <= firsts.keys():
        message = consumer.receive(RETURN_S * 1000)
        consumer.acknowledge(message)
        firsts.setdefault(int(message.data()))
    assert [number for number in firsts if number >= 100] == list(range(100, 110))


def test_nothing_is_lost_when_the_broker_dies_under_a_running_producer(
    server: Broker, client: pulsar.Client, topic: str
) -> None:
    client.subscribe(topic, "keep").close()
    producer = client.create_producer(
        topic, max_pending_messages=500, block_if_queue_full=True, send_timeout_millis=NO_TIMEOUT
    )
    receipted: list[int] = []
    failures: list[Any] = []
    enough = threading.Event()
    total = 6000

    def on_receipt(number: int, result: Any) -> None:
        # What raises here ends the whole process: the client calls this from a thread that is not Python's.
        (receipted if result == pulsar.Result.Ok else failures).append(number)
        if len(receipted) + len(failures) == total:
            enough.set()

    def send() -> None:
        for number in range(total):
            producer.send_async(b"%d" % number, lambda result, _id, number=number: on_receipt(number, result))

    sender = threading.Thread(target=send)
    sender.start()
    wait_for(lambda: len(receipted) > 1000, "the first thousand receipts")
    server.kill()
    server.restart()
    sender.join(RETURN_S)
    assert enough.wait(RETURN_S), f"{len(receipted)} receipts"
    assert not failures
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    stored = []
    while reader.has_message_available():
        stored.append(int(reader.read_next(RECEIVE_MS).data()))
    firsts = list(dict.fromkeys(stored))
    assert firsts == list(range(total))


def test_topics_partitions_and_subscriptions_survive(server: Broker, client: pulsar.Client) -> None:
    namespace = f"public/{own_name('survivors')}"
    with httpx.Client(base_url=f"{server.web_url}/admin/v2/", timeout=20) as admin:
        admin.put(f"namespaces/{namespace}").raise_for_status()
        admin.put(f"persistent/{namespace}/parts/partitions", json=4).raise_for_status()
        plain = f"persistent://{namespace}/plain"
        client.create_producer(plain).close()
        client.subscribe(plain, "idle").close()
        before = sorted(admin.get(f"persistent/{namespace}").json())
        server.kill()
        server.restart()
        assert sorted(admin.get(f"persistent/{namespace}").json()) == before
        assert f"persistent://{namespace}/parts-partition-3" in before
        assert admin.get(f"persistent/{namespace}/parts/partitions").json()["partitions"] == 4
        assert admin.get(f"persistent/{namespace}/plain/subscriptions").json() == ["idle"]
    producer = client.create_producer(plain)
    producer.send(b"x")
    consumer = client.subscribe(plain, "idle")
    assert datas(receive_all(consumer, 1)) == [b"x"]
    assert is_silent(consumer)
