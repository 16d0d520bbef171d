"""Delayed messages, as long as our broker does not have them: each fails once, and nothing else notices."""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta

import pulsar
import pytest

from tests.official.talk import datas, receive_all
from tests.support.pulsar import Broker
from tests.support.servers import Server
from tests.support.waiting import wait_for

EARLIEST = pulsar.InitialPosition.Earliest


@pytest.fixture
def ours(broker: Broker) -> Broker:
    if not isinstance(broker, Server):
        pytest.skip("Apache Pulsar delays messages")
    return broker


@pytest.mark.parametrize("batched", [False, True])
def test_a_delayed_message_fails_once_on_a_connection_that_stays(
    ours: Broker, client: pulsar.Client, topic: str, batched: bool
) -> None:
    told: list[tuple[str, pulsar.Result]] = []
    lock = threading.Lock()

    def tell(name: str, result: pulsar.Result) -> None:
        with lock:
            told.append((name, result))

    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    producer = client.create_producer(topic, batching_enabled=batched)
    for number in range(5):
        for name, delay in ((f"before {number}", None), (f"delayed {number}", timedelta(hours=1))):
            producer.send_async(name.encode(), lambda result, _, name=name: tell(name, result), deliver_after=delay)
        with contextlib.suppress(pulsar.ChecksumError):
            producer.flush()
    wait_for(lambda: len(told) == 10, "answers")
    failed = {name: result for name, result in told if result != pulsar.Result.Ok}
    assert failed == {f"delayed {number}": pulsar.Result.ChecksumError for number in range(5)}
    producer.send(b"after")
    assert datas(receive_all(consumer, 6)) == [*(b"before %d" % number for number in range(5)), b"after"]
    assert producer.is_connected()
    assert "an entry is refused" in ours.log_tail() if isinstance(ours, Server) else True


def test_no_other_producer_of_the_client_reconnects(
    ours: Broker, client: pulsar.Client, topic: str, official_log: pulsar.FileLogger
) -> None:
    other = client.create_producer(f"{topic}-other", send_timeout_millis=3000)
    producer = client.create_producer(topic, send_timeout_millis=3000)
    assert isinstance(ours, Server)
    for _ in range(20):
        with pytest.raises(pulsar.ChecksumError):
            producer.send(b"x", deliver_after=timedelta(hours=1))
        other.send(b"y")
    log = ours.log_file.read_text()
    assert "breaks the protocol" not in log
