"""The scenarios of scenarios.py by the official Python client, which has no admin library.

Arguments: service URL, admin URL, prefix of all topics, names of scenarios. Writes one line for each: its name, a tab,
what was observed as JSON; or, after the tab, "error " and the error, or "absent" for one that is not here.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pulsar

TIMEOUT_MS = 20_000
LARGE = "x" * 10_000


class Scenarios:
    """All of them, on one client."""

    def __init__(self, service_url: str) -> None:
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        self._client = pulsar.Client(service_url, operation_timeout_seconds=20, logger=logger)

    def _subscribe(self, topic: Any, kind: pulsar.ConsumerType = pulsar.ConsumerType.Exclusive, **more: Any) -> Any:
        start = pulsar.InitialPosition.Earliest
        return self._client.subscribe(
            topic, "s", kind, initial_position=start, negative_ack_redelivery_delay_ms=200, **more
        )

    def _send(self, topic: str, first: int, end: int) -> None:
        producer = self._client.create_producer(topic, batching_enabled=False)
        for number in range(first, end):
            producer.send(f"m{number}".encode())
        producer.close()

    @staticmethod
    def _texts(consumer: Any, count: int) -> list[str]:
        texts = []
        for _ in range(count):
            message = consumer.receive(TIMEOUT_MS)
            texts.append(message.data().decode())
            consumer.acknowledge(message)
        return texts

    @staticmethod
    def _next(consumer: Any, timeout_ms: int) -> Any:
        try:
            return consumer.receive(timeout_ms)
        except pulsar.Timeout:
            return None

    def order(self, topic: str) -> Any:
        consumer = self._subscribe(topic)
        producer = self._client.create_producer(topic, batching_enabled=True, batching_max_messages=10)
        for number in range(100):
            producer.send_async(
                f"m{number}".encode(), None, partition_key=f"k{number % 5}", properties={"number": str(number)},
                event_timestamp=1000 + number,
            )  # fmt: skip
        producer.flush()
        ordered, keys = 0, set()
        for number in range(100):
            message = consumer.receive(TIMEOUT_MS)
            keys.add(message.partition_key())
            same = (message.data(), message.properties()["number"], message.event_timestamp())
            ordered += same == (f"m{number}".encode(), str(number), 1000 + number)
            consumer.acknowledge(message)
        return [ordered, sorted(keys)]

    def compression(self, topic: str) -> Any:
        consumer = self._subscribe(topic)
        for kind in (pulsar.CompressionType.LZ4, pulsar.CompressionType.ZLib, pulsar.CompressionType.ZSTD):
            producer = self._client.create_producer(topic, compression_type=kind)
            producer.send(LARGE.encode())
        return [len(text) if text == LARGE else -1 for text in self._texts(consumer, 3)]

    def chunks(self, topic: str) -> Any:
        large = bytes(number * 31 // 7 & 255 for number in range(12_000_000))
        consumer = self._subscribe(topic)
        producer = self._client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
        producer.send(large)
        producer.send(b"after")
        message = consumer.receive(TIMEOUT_MS)
        consumer.acknowledge(message)
        return [message.data() == large, self._texts(consumer, 1)]

    def shared(self, topic: str) -> Any:
        first = self._subscribe(topic, pulsar.ConsumerType.Shared, receiver_queue_size=1)
        second = self._subscribe(topic, pulsar.ConsumerType.Shared, receiver_queue_size=1)
        self._send(topic, 0, 20)
        is_shared = first.receive(TIMEOUT_MS) is not None  # and keeps it until it is closed
        seen = set(self._texts(second, 5))
        first.close()
        seen.update(self._texts(second, 15))
        return [is_shared, len(seen)]

    def redelivery_count(self, topic: str) -> Any:
        consumer = self._subscribe(topic, pulsar.ConsumerType.Shared)
        self._send(topic, 0, 1)
        counts = []
        for _ in range(3):
            message = consumer.receive(TIMEOUT_MS)
            counts.append(message.redelivery_count())
            consumer.negative_acknowledge(message)
        return counts

    def delayed(self, topic: str) -> Any:
        consumer = self._subscribe(topic, pulsar.ConsumerType.Shared)
        producer = self._client.create_producer(topic, batching_enabled=False)
        now_s = time.time()
        producer.send(b"m0", deliver_after=timedelta(seconds=5))
        producer.send(b"m1", deliver_at=int(now_s * 1000) + 2000)
        producer.send(b"m2")
        seen = []
        for least_s in (0, 2, 5):
            seen.append(consumer.receive(TIMEOUT_MS).data().decode())
            seen.append(time.time() - now_s >= least_s - 0.001)  # the protocol counts whole milliseconds
        return seen

    def ack_timeout(self, topic: str) -> Any:
        consumer = self._subscribe(topic, pulsar.ConsumerType.Shared, unacked_messages_timeout_ms=10_000)
        self._send(topic, 0, 1)
        first, again = consumer.receive(TIMEOUT_MS), consumer.receive(TIMEOUT_MS)
        consumer.acknowledge(again)
        return [first.data().decode(), again.data().decode(), again.redelivery_count()]

    def dead_letter(self, topic: str) -> Any:
        policy = pulsar.ConsumerDeadLetterPolicy(max_redeliver_count=2, initial_subscription_name="dead")
        consumer = self._subscribe(topic, pulsar.ConsumerType.Shared, dead_letter_policy=policy)
        dead = self._subscribe(f"{topic}-s-DLQ", pulsar.ConsumerType.Shared)
        self._send(topic, 0, 2)
        times, is_good = 0, False
        while (message := self._next(consumer, 3000)) is not None:
            if message.data() == b"m0":
                times += 1
                consumer.negative_acknowledge(message)
            else:
                is_good = True
                consumer.acknowledge(message)
        letter = dead.receive(TIMEOUT_MS)
        dead.acknowledge(letter)
        return [times, is_good, letter.data().decode(), letter.properties()["REAL_TOPIC"] == topic, 0]

    def failover(self, topic: str) -> Any:
        one = self._subscribe(topic, pulsar.ConsumerType.Failover)
        other = self._subscribe(topic, pulsar.ConsumerType.Failover)
        time.sleep(2)  # a change of the active consumer has a delay of one
        self._send(topic, 0, 6)
        active, waiting = other, one
        message: Any = None
        until_s = time.monotonic() + TIMEOUT_MS / 1000
        while message is None and time.monotonic() < until_s:
            active, waiting = waiting, active
            message = self._next(active, 100)
        active.acknowledge(message)
        seen = [message.data().decode(), *self._texts(active, 2)]
        active.receive(TIMEOUT_MS)  # and is not acknowledged
        active.close()
        return seen + self._texts(waiting, 3)

    def key_shared(self, topic: str) -> Any:
        consumers = [self._subscribe(topic, pulsar.ConsumerType.KeyShared) for _ in range(2)]
        producer = self._client.create_producer(
            topic, batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased
        )
        for number in range(200):
            producer.send_async(str(number).encode(), None, partition_key=f"k{number % 20}")
        producer.flush()
        numbers: dict[str, list[int]] = {}
        places: dict[str, set[int]] = {}
        for place, consumer in enumerate(consumers):
            while (message := self._next(consumer, 2000)) is not None:
                numbers.setdefault(message.partition_key(), []).append(int(message.data()))
                places.setdefault(message.partition_key(), set()).add(place)
                consumer.acknowledge(message)
        is_ordered = all(found == sorted(found) for found in numbers.values())
        count = sum(map(len, numbers.values()))
        return [count, is_ordered, max(map(len, places.values())), len(set().union(*places.values()))]

    def sticky(self, topic: str) -> Any:
        def subscribe(first: int, last: int) -> Any:
            policy = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, sticky_ranges=[(first, last)])
            return self._subscribe(topic, pulsar.ConsumerType.KeyShared, key_shared_policy=policy)

        consumers = [subscribe(0, 32767), subscribe(32768, 65535)]
        try:
            subscribe(100, 200)
            refusal = "is taken"
        except pulsar.ConsumerAssignError:
            refusal = "is refused"
        producer = self._client.create_producer(topic, batching_enabled=False)
        for number in range(20):
            producer.send(b"m", partition_key=f"k{number % 10}")
        seen: list[Any] = []
        for consumer in consumers:
            keys = set()
            while (message := self._next(consumer, 2000)) is not None:
                keys.add(message.partition_key())
                consumer.acknowledge(message)
            seen.append(sorted(keys))
        return [*seen, refusal]

    def batch_index(self, topic: str) -> Any:
        consumer = self._subscribe(topic, pulsar.ConsumerType.Shared, batch_index_ack_enabled=True)
        producer = self._client.create_producer(
            topic, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=TIMEOUT_MS
        )
        for number in range(10):
            producer.send_async(f"m{number}".encode(), None)
        producer.flush()
        for number in range(10):
            message = consumer.receive(TIMEOUT_MS)
            if number % 2 == 0:
                consumer.acknowledge(message)
        consumer.close()
        again = self._subscribe(topic, pulsar.ConsumerType.Shared, batch_index_ack_enabled=True)
        return [*self._texts(again, 5), self._next(again, 500)]

    def table_view(self, topic: str) -> Any:
        producer = self._client.create_producer(topic, batching_enabled=False)
        for number in range(6):
            producer.send(f"m{number}".encode(), partition_key=f"k{number % 3}")
        view = self._client.create_table_view(topic)
        seen = [view.get(key).decode() for key in ("k0", "k1", "k2")]
        producer.send(b"m6", partition_key="k0")
        producer.send(b"", partition_key="k1")  # which deletes the key
        until_s = time.monotonic() + TIMEOUT_MS / 1000
        while view.get("k1") is not None and time.monotonic() < until_s:
            time.sleep(0.05)
        return [*seen, view.get("k0").decode(), view.get("k1")]

    def exclusive_is_busy(self, topic: str) -> Any:
        self._subscribe(topic)
        try:
            self._subscribe(topic)
        except pulsar.ConsumerBusy:
            return "busy"
        return "both are there"

    def cumulative(self, topic: str) -> Any:
        self._send(topic, 0, 10)
        consumer = self._subscribe(topic)
        received = [consumer.receive(TIMEOUT_MS) for _ in range(7)]
        consumer.acknowledge_cumulative(received[-1])
        consumer.close()
        return self._texts(self._subscribe(topic), 3)

    def seek(self, topic: str) -> Any:
        self._send(topic, 0, 10)
        consumer = self._subscribe(topic)
        received = [consumer.receive(TIMEOUT_MS) for _ in range(10)]
        for message in received:
            consumer.acknowledge(message)
        seen = []
        for place in (pulsar.MessageId.earliest, received[5].message_id(), 0):
            consumer.seek(place)
            seen.append(self._texts(consumer, 1))
        consumer.seek(pulsar.MessageId.latest)
        self._send(topic, 10, 11)
        return [*seen, self._texts(consumer, 1)]

    def reader(self, topic: str) -> Any:
        self._send(topic, 0, 5)
        seen: list[Any] = []
        reader = self._client.create_reader(topic, pulsar.MessageId.earliest)
        while reader.has_message_available():
            seen.append(reader.read_next(TIMEOUT_MS))
        second = self._client.create_reader(topic, seen[1].message_id())
        after = second.read_next(TIMEOUT_MS)
        latest = self._client.create_reader(topic, pulsar.MessageId.latest)
        return [*(one.data().decode() for one in (*seen, after)), str(latest.has_message_available()).lower()]

    def regex(self, topic: str) -> Any:
        self._send(f"{topic}-one", 0, 1)
        self._send(f"{topic}-two", 1, 2)
        self._send(f"{topic}x", 2, 3)
        consumer = self._subscribe(re.compile(f"{topic}-.*"))
        return [*sorted(self._texts(consumer, 2)), self._next(consumer, 500)]

    def non_persistent(self, topic: str) -> Any:
        topic = f"non-{topic}"
        first = self._subscribe(topic)
        self._send(topic, 0, 5)
        seen = self._texts(first, 5)
        first.close()
        self._send(topic, 5, 6)
        second = self._subscribe(topic)
        self._send(topic, 6, 7)
        return seen + self._texts(second, 1)


def main(service_url: str, _admin_url: str, prefix: str, *names: str) -> None:
    """Play scenarios."""
    scenarios = Scenarios(service_url)
    for name in names:
        play: Callable[[str], Any] | None = getattr(scenarios, name, None)
        if play is None:
            seen = "absent"
        else:
            try:
                seen = json.dumps(play(f"{prefix}-{name}"))
            except Exception as error:  # noqa: BLE001  whatever it is, it is what was observed
                seen = f"error {' '.join(f'{type(error).__name__}: {error}'.split())}"
        print(f"{name}\t{seen}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
