"""Reading a Kafka topic without Magnetar: a loop on the library's consumer.

`python -m benchmarks.kafka_loop SERVERS TOPIC COUNT [NAME=VALUE …]` reads COUNT records and prints the rate per second
between 10 % and 95 % of them. Additional consumer settings can be passed.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer

BATCH = 1000


def main(servers: str, topic: str, count: int, settings: dict[str, str]) -> float:
    consumer = Consumer({
        "bootstrap.servers": servers,
        "group.id": f"loop-{time.time()}",
        "auto.offset.reset": "earliest",
        **settings,
    })  # fmt: skip
    consumer.subscribe([topic])
    seen, size = 0, 0
    first: tuple[float, int] | None = None
    while seen < 0.95 * count:
        for message in consumer.consume(BATCH, 1.0):
            assert message.error() is None
            size += len(message.value() or b"")
            seen += 1
        if first is None and seen >= 0.1 * count:
            first = time.perf_counter(), seen
    assert first is not None
    rate = (seen - first[1]) / (time.perf_counter() - first[0])
    consumer.close()
    return rate


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), dict(word.split("=", 1) for word in sys.argv[4:])))
