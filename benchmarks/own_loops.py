"""The benchmarked functions and commands as plain loops on our client, the peers of `benchmarks.loops`.

`python -m benchmarks.own_loops KIND SERVICE_URL SOURCE SINK SUBSCRIPTION` runs until it is stopped; the kind `lines`
stops at the end of the file `SOURCE`. If possible, the loops receive and send whole entries, which is fastest. They
acknowledge an entry once all its outputs are stored, as required for at-least-once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from magnetar.client import AsyncClient, Consumer, ConsumerConfig, Message, Producer, ProducerConfig, encode_entry

from .load import IN_FLIGHT, RECEIVER_QUEUE
from .sample_functions import add_total, refuse, wait

CALLS_MAX = 1000
"""Maximum number of concurrent waiting calls, as in an async function."""
LINES_AT_ONCE = 1000
RECEIVING = ConsumerConfig(initial_position="Earliest", receiver_queue_size=RECEIVER_QUEUE)
_encode = json.JSONEncoder(separators=(",", ":")).encode


@contextlib.asynccontextmanager
async def opened(
    service_url: str, source: str, sink: str, subscription: str, *, batching: bool = False
) -> AsyncIterator[tuple[Consumer, Producer]]:
    """Provide a consumer of one topic and a producer of another."""
    sending = ProducerConfig(batching=batching, max_pending_messages=IN_FLIGHT, block_if_queue_full=True)
    async with AsyncClient(service_url) as client:
        producer = await client.create_producer(sink, sending)
        consumer = await client.subscribe(source, subscription, RECEIVING)
        assert isinstance(producer, Producer), f"{sink} is partitioned"
        assert isinstance(consumer, Consumer), f"{source} is partitioned"
        yield consumer, producer


async def documents(service_url: str, source: str, sink: str, subscription: str) -> None:
    """Receive, decode JSON, call the function, encode JSON, send, acknowledge."""
    async with opened(service_url, source, sink, subscription) as (consumer, producer):
        while True:
            entry = await consumer.receive_entry()
            outputs = [_encode(add_total(json.loads(payload))).encode() for payload in entry.payloads]
            await producer.ready()
            stored = producer.send_entry(encode_entry(outputs))
            stored.add_done_callback(_when_all_are_stored(1, partial(consumer.ack_entry, entry)))
            await asyncio.sleep(0)  # lets receipts and acknowledgements be processed


async def letters(service_url: str, source: str, sink: str, subscription: str) -> None:
    """Receive, call the failing function, send the message with the error to the dead-letter topic, acknowledge."""
    async with opened(service_url, source, sink, subscription, batching=True) as (consumer, producer):
        while True:
            entry = await consumer.receive_entry()
            messages = entry.messages()
            stored = _when_all_are_stored(len(messages), partial(consumer.ack_entry, entry))
            for message in messages:
                try:
                    refuse(message.data.decode())
                except ValueError as error:
                    await producer.ready()
                    future = producer.send_nowait(
                        message.data,
                        key=message.key,
                        event_time_ms=message.event_time_ms,
                        properties={**message.properties, **why(error, source, subscription, message.message_id)},
                    )
                    future.add_done_callback(stored)
            await asyncio.sleep(0)


def why(error: Exception, topic: str, subscription: str, message_id: object) -> dict[str, str]:
    """Return the properties of a dead letter, as for a function but without the traceback."""
    return {
        "REAL_TOPIC": topic,
        "REAL_SUBSCRIPTION": subscription,
        "ORIGIN_MESSAGE_ID": str(message_id),
        "EXCEPTION": f"{type(error).__name__}: {error}",
        "TRIES": "1",
        "FUNCTION": "a loop",
        "FUNCTION_VERSION": "0",
    }


async def pauses(service_url: str, source: str, _sink: str, subscription: str) -> None:
    """Receive and call the waiting function for many messages concurrently, but sequentially for each key."""
    async with AsyncClient(service_url) as client:
        consumer = await client.subscribe(source, subscription, RECEIVING)
        calls = Calls()
        while True:
            message = await consumer.receive()
            await calls.start(message.key, partial(_called, message), partial(consumer.ack, message))


async def _called(message: Message) -> None:
    await wait(message.data.decode())


class Calls:
    """Waiting calls: at most `CALLS_MAX` at a time, and one per key."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._last: dict[str | None, asyncio.Task[None]] = {}

    async def start(self, key: str | None, call: Callable[[], Awaitable[None]], done: Callable[[], Any]) -> None:
        """Start a call when the limit permits."""
        await self._room.acquire()
        self._last[key] = asyncio.create_task(self._run(self._last.get(key), call, done))

    async def _run(
        self, before: asyncio.Task[None] | None, call: Callable[[], Awaitable[None]], done: Callable[[], Any]
    ) -> None:
        if before is not None:
            await before
        await call()
        done()
        self._room.release()


async def lines(service_url: str, source: str, sink: str, _subscription: str) -> None:
    """Send each line of a file."""
    config = ProducerConfig(batching=False, max_pending_messages=IN_FLIGHT, block_if_queue_full=True)
    async with AsyncClient(service_url) as client:
        producer = await client.create_producer(sink, config)
        for chunk in chunks_of(Path(source)):
            await producer.ready()
            producer.send_entry(encode_entry(chunk))
        await producer.flush()


def chunks_of(file: Path) -> Iterator[list[bytes]]:
    """Yield the lines of a file in chunks, without their ends."""
    with file.open("rb") as opened_file:
        while chunk := [line.removesuffix(b"\n") for line in itertools.islice(opened_file, LINES_AT_ONCE)]:
            yield chunk


def _when_all_are_stored(count: int, then: Callable[[], Any]) -> Callable[[asyncio.Future[Any]], None]:
    """Return a callback for `count` receipts that calls `then` after the last one."""
    left = count

    def take(receipt: asyncio.Future[Any]) -> None:
        nonlocal left
        receipt.result()
        left -= 1
        if not left:
            then()

    return take


KINDS = {loop.__name__: loop for loop in (documents, letters, pauses, lines)}


if __name__ == "__main__":
    uvloop.run(KINDS[sys.argv[1]](*sys.argv[2:]))
