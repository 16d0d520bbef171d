"""The benchmark's function as a user would write it without functions: receive, call, send, acknowledge.

`python -m benchmarks.official_loop SERVICE_URL INPUT OUTPUT BATCH` runs until it is stopped. It sends without waiting
and acknowledges on receipts, as required for at-least-once and like Pulsar's own Python instance.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import pulsar

from .load import official, official_producer


def process(text: str) -> str:
    return text + "!"


def main(service_url: str, source: str, sink: str, batch: int) -> None:
    client = official(service_url)
    consumer = client.subscribe(
        source, "loop", consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )
    producer = official_producer(client, sink, batch)
    while True:
        message = consumer.receive()
        output = process(message.data().decode())
        producer.send_async(output.encode(), partial(on_receipt, consumer, message))


def on_receipt(consumer: pulsar.Consumer, message: pulsar.Message, result: Any, _message_id: Any) -> None:
    if result == pulsar.Result.Ok:
        consumer.acknowledge(message)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
