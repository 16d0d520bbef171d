"""The loops of `own_loops` on the official client, the second peers of `benchmarks.loops`.

`python -m benchmarks.official_loops KIND SERVICE_URL SOURCE SINK SUBSCRIPTION` runs until it is stopped; the kind
`lines` stops at the end of the file `SOURCE`. The loops send without waiting and acknowledge on receipts.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pulsar.asyncio

from .load import RECEIVER_QUEUE, Receipts, official, official_producer
from .official_loop import on_receipt
from .own_loops import Calls, chunks_of, why
from .sample_functions import add_total, refuse, wait

BATCH = 1000
_encode = json.JSONEncoder(separators=(",", ":")).encode
_SUBSCRIBED: dict[str, Any] = {
    "consumer_type": pulsar.ConsumerType.Shared,
    "initial_position": pulsar.InitialPosition.Earliest,
    "receiver_queue_size": RECEIVER_QUEUE,
}


def documents(service_url: str, source: str, sink: str, subscription: str) -> None:
    """Same as `own_loops.documents`, on the official client."""
    client = official(service_url)
    consumer = client.subscribe(source, subscription, **_SUBSCRIBED)
    producer = official_producer(client, sink, BATCH)
    while True:
        message = consumer.receive()
        output = _encode(add_total(json.loads(message.data())))
        producer.send_async(output.encode(), partial(on_receipt, consumer, message))


def letters(service_url: str, source: str, sink: str, subscription: str) -> None:
    """Same as `own_loops.letters`, on the official client."""
    client = official(service_url)
    consumer = client.subscribe(source, subscription, **_SUBSCRIBED)
    producer = official_producer(client, sink, BATCH)
    while True:
        message = consumer.receive()
        try:
            refuse(message.data().decode())
        except ValueError as error:
            producer.send_async(
                message.data(),
                partial(on_receipt, consumer, message),
                partition_key=message.partition_key(),
                event_timestamp=message.event_timestamp(),
                properties={**message.properties(), **why(error, source, subscription, message.message_id())},
            )


def pauses(service_url: str, source: str, _sink: str, subscription: str) -> None:
    """Same as `own_loops.pauses`, on the official client."""
    asyncio.run(_pauses(service_url, source, subscription))


async def _pauses(service_url: str, source: str, subscription: str) -> None:
    client = pulsar.asyncio.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = await client.subscribe(source, subscription, **_SUBSCRIBED)
    calls = Calls()
    while True:
        message = await consumer.receive()
        await calls.start(message.partition_key(), partial(_called, consumer, message), lambda: None)


async def _called(consumer: Any, message: Any) -> None:
    await wait(message.data().decode())
    await consumer.acknowledge(message)


def lines(service_url: str, source: str, sink: str, _subscription: str) -> None:
    """Same as `own_loops.lines`, on the official client."""
    client = official(service_url)
    producer = official_producer(client, sink, BATCH)
    receipts, sent = Receipts(), 0
    for chunk in chunks_of(Path(source)):
        for line in chunk:
            producer.send_async(line, receipts)
        sent += len(chunk)
    producer.flush()
    receipts.wait_for(sent)
    client.close()


KINDS = {loop.__name__: loop for loop in (documents, letters, pauses, lines)}


if __name__ == "__main__":
    KINDS[sys.argv[1]](*sys.argv[2:])
