"""A message through one listener of a broker, by the official Python client.

Arguments: service URL, listener name, topic. Writes the payload that came back, or "error" and the error; keeps its
producer until standard input ends.
"""

from __future__ import annotations

import os
import sys

import pulsar

LIMIT_S = 5


def main(service_url: str, listener: str, topic: str) -> None:
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    client = pulsar.Client(
        service_url, operation_timeout_seconds=LIMIT_S, listener_name=listener or None, logger=logger
    )
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"hello")
    print(consumer.receive(20_000).data().decode(), flush=True)
    sys.stdin.read()
    client.close()


try:
    main(*sys.argv[1:])
except Exception as error:  # noqa: BLE001  the test compares it
    print("error", type(error).__name__, error, flush=True)
