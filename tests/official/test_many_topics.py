"""Two thousand topics open at once on one broker."""

from __future__ import annotations

import threading
import time
from typing import Any

import pulsar
import pytest

from tests.official.talk import RECEIVE_MS

TOPICS = 2000
LIMIT_S = 60
CREATE_AT_ONCE = 100


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_two_thousand_topics_carry_one_message_each_in_a_minute(client: pulsar.Client, topic: str) -> None:
    names = [f"{topic}-{i}" for i in range(TOPICS)]
    began = time.monotonic()
    consumers = _open_all(names, lambda name, done: client._client.subscribe_async(name, "s", _consumer_config(), done))
    producers = _open_all(
        names, lambda name, done: client._client.create_producer_async(name, _producer_config(), done)
    )
    for name, producer in zip(names, producers, strict=True):
        producer.send_async(_message(name.encode()), lambda result, _id: None)
    for producer in producers:
        producer.flush()
    for name, consumer in zip(names, consumers, strict=True):
        message = consumer.receive(RECEIVE_MS)
        assert message.data() == name.encode()
        consumer.acknowledge(message)
    took_s = time.monotonic() - began
    assert took_s < LIMIT_S, f"{took_s:.1f} s"


def _open_all(names: list[str], open_one: Any) -> list[Any]:
    """Open one thing per name, many at a time; in the order of the names.

    The public face of the official client creates one after the other; its asynchronous face lies one layer below.
    """
    opened: dict[str, Any] = {}
    failures: list[str] = []
    room = threading.Semaphore(CREATE_AT_ONCE)
    done = threading.Event()

    def collector(name: str) -> Any:
        def on_open(result: Any, it: Any) -> None:
            if result == pulsar.Result.Ok:
                opened[name] = it
            else:
                failures.append(f"{name}: {result}")
            room.release()
            if len(opened) + len(failures) == len(names):
                done.set()

        return on_open

    for name in names:
        assert room.acquire(timeout=30), f"{len(opened)} of {len(names)} open, failures {failures}"
        open_one(name, collector(name))
    assert done.wait(30), f"{len(opened)} of {len(names)} open, failures {failures}"
    assert not failures, failures
    return [opened[name] for name in names]


def _consumer_config() -> Any:
    import _pulsar

    config = _pulsar.ConsumerConfiguration()
    config.receiver_queue_size(10)
    return config


def _producer_config() -> Any:
    import _pulsar

    return _pulsar.ProducerConfiguration()


def _message(payload: bytes) -> Any:
    import _pulsar

    return _pulsar.MessageBuilder().content(payload).build()
