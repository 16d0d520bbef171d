"""Publishes numbered rows with the current time at a constant rate, with a system's official client.

`python -m benchmarks.paced_publish kafka|magnetar ADDRESS TOPIC PARTITIONS RATE COUNT` uses the partitions in turn and
prints the achieved rows per second. Both clients send a batch once it is `LINGER_MS` old.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from .apache_kafka import producer_settings
from .load import official

KAFKA, OURS = "kafka", "magnetar"
LINGER_MS = 5
BATCH = 1000
SIZE_BYTES = 100
TICK_S = 0.001
TIMEOUT_S = 60.0


class Publisher(NamedTuple):
    """A publisher: `send` takes a partition and a payload, `flush` returns when all messages are stored."""

    send: Callable[[int, bytes], None]
    flush: Callable[[], None]


def payload(number: int, now_ns: int) -> bytes:
    """Return the payload of a row."""
    return b"%d %d " % (number, now_ns) + b"x" * (SIZE_BYTES - len(b"%d %d " % (number, now_ns)))


def parse(row: bytes) -> tuple[int, int]:
    """Return the number of a row, and its time in nanoseconds."""
    number, sent_ns, _ = row.split(b" ", 2)
    return int(number), int(sent_ns)


def main(system: str, address: str, topic: str, partitions: int, rate: float, count: int) -> float:
    """Publish `count` rows; return rows per second."""
    publisher = {KAFKA: _to_kafka, OURS: _to_us}[system](address, topic, partitions)
    places = itertools.cycle(range(partitions))
    began = time.perf_counter()
    sent = 0
    while sent < count:
        due = min(count, int((time.perf_counter() - began) * rate) + 1)
        for number in range(sent, due):
            publisher.send(next(places), payload(number, time.time_ns()))
        sent = due
        time.sleep(TICK_S)
    took_s = time.perf_counter() - began
    publisher.flush()
    return count / took_s


def _to_kafka(address: str, topic: str, _partitions: int) -> Publisher:
    from confluent_kafka import Producer

    producer = Producer(producer_settings(address, BATCH, LINGER_MS))

    def told(error: object, _message: object) -> None:
        if error is not None:
            raise RuntimeError(f"row was not stored: {error}")

    def send(partition: int, row: bytes) -> None:
        producer.produce(topic, row, partition=partition, on_delivery=told)
        producer.poll(0)

    def flush() -> None:
        if left := producer.flush(TIMEOUT_S):
            raise TimeoutError(f"{left} rows were not stored by Kafka within {TIMEOUT_S:g} s")

    return Publisher(send, flush)


def _to_us(address: str, topic: str, partitions: int) -> Publisher:
    import pulsar

    client = official(address)
    producers = [
        client.create_producer(
            f"{topic}-partition-{number}",
            batching_enabled=True,
            batching_max_messages=BATCH,
            batching_max_publish_delay_ms=LINGER_MS,
            max_pending_messages=20_000,
            block_if_queue_full=True,
        )
        for number in range(partitions)
    ]

    def told(result: object, _message_id: object) -> None:
        if result != pulsar.Result.Ok:
            raise RuntimeError(f"row was not stored: {result}")

    def send(partition: int, row: bytes) -> None:
        producers[partition].send_async(row, told)

    def flush() -> None:
        for producer in producers:
            producer.flush()
        client.close()

    return Publisher(send, flush)


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6])))
