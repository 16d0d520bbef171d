"""Input at a given rate, and a counting reader of all outputs, on one event loop in a thread.

The input consists of entries written by the official client, with the three batch sizes in turn. Each is sent with a
new sequence id, so that entries resent after a kill of the broker are stored once. A reader identifies redelivered
messages, whose acknowledgements were lost by a kill, by their positions.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import uvloop
from magnetar.client import AsyncClient, ConsumerConfig, Producer, ProducerConfig
from magnetar.wire.payload import open_payload, seal
from magnetar.wire.pulsar_api_pb2 import MessageMetadata

from ..real_input import BATCHES, OfficialInput, messages_of

ENTRIES_OF_A_TURN = {1000: 1, 50: 20, 1: 20}
"""Number of consecutive entries of the same batch size."""
READER = "reader"
"""Subscription of the outputs."""
AHEAD = 200_000
"""Maximum backlog of both functions while the maximum rate is measured."""
IN_FLIGHT = 50_000
AT_ONCE = 20  # entries per event loop iteration
LOOK_S = 0.005
JOIN_S = 120.0


class Entry:
    """An entry of the official client, decoded far enough to change its sequence id."""

    def __init__(self, section: bytes, messages: int, place: tuple[int, int]) -> None:
        self.metadata, offset = open_payload(section)
        self.body = section[offset:]
        self.messages = messages
        self.place = place
        """Batch size, and the number among the entries of that size."""

    def numbered(self, producer_name: str, sequence_id: int) -> bytes:
        """Return the payload section with the given producer name and sequence id."""
        metadata = MessageMetadata()
        metadata.CopyFrom(self.metadata)
        metadata.producer_name = producer_name
        metadata.sequence_id = sequence_id
        metadata.publish_time = int(time.time() * 1000)
        if metadata.HasField("highest_sequence_id"):
            metadata.highest_sequence_id = sequence_id
        return seal(metadata, self.body)


def turns(inputs: Sequence[OfficialInput]) -> Iterator[Entry]:
    """Yield entries of all batch sizes, endlessly."""
    cycles = {
        one.batch: itertools.cycle(
            [Entry(it.section, it.messages, (one.batch, number)) for number, it in enumerate(one.entries)]
        )
        for one in inputs
    }
    while True:
        for batch, entries in ENTRIES_OF_A_TURN.items():
            yield from itertools.islice(cycles[batch], entries)


class Traffic:
    """Publishes input and reads the outputs.

    Attributes:
        published: number of messages passed to the producers.
        sent: how often each entry was sent.
        is_stored: whether all messages are stored, after `finish`.
        received: number of messages by output topic.
        payloads: how often each payload was received, by output topic.
    """

    def __init__(
        self,
        service_url: str,
        given: Sequence[OfficialInput],
        inputs: Sequence[str],
        outputs: Mapping[str, Sequence[str]],
    ) -> None:
        """Create traffic; `start` connects.

        Args:
            service_url: broker address.
            given: input of the official client for each batch size.
            inputs: input topics, used in turn.
            outputs: for each function, the topics that receive each input once.
        """
        assert {one.batch for one in given} == set(BATCHES)
        self.published = 0
        self.is_stored = False
        self.sent: Counter[tuple[int, int]] = Counter()
        self.received: dict[str, int] = {}
        self.payloads: dict[str, Counter[bytes]] = {}
        self._url = service_url
        self._entries = turns(given)
        self._inputs = inputs
        self._outputs = outputs
        self._rate = 0.0
        self._unpaced = False
        self._since = (0.0, 0)
        self._is_over = False
        self._may_end = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name="traffic")
        for topic in itertools.chain(*outputs.values()):
            self.received[topic] = 0
            self.payloads[topic] = Counter()

    def start(self) -> None:
        """Connect; nothing is published before `pace`."""
        self._thread.start()

    def pace(self, rate: float | None) -> None:
        """Set the number of messages to publish per second; None for as many as the functions process."""
        self._since = (time.monotonic(), self.published)
        self._rate, self._unpaced = rate or 0.0, rate is None

    def check(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self._failure is not None:
            raise self._failure
        if not self._thread.is_alive():
            raise RuntimeError("the traffic ended unexpectedly")

    def finish(self) -> None:
        """Stop publishing; pending messages are still stored."""
        self._is_over = True

    def close(self) -> None:
        """Stop the thread."""
        self._is_over = True
        self._may_end.set()
        self._thread.join(JOIN_S)
        if self._failure is not None:
            raise self._failure

    def processed(self) -> dict[str, int]:
        """Return the number of outputs of each function so far."""
        return {function: sum(self.received[topic] for topic in topics) for function, topics in self._outputs.items()}

    def expected(self) -> tuple[Counter[bytes], Counter[str]]:
        """Return how often each payload and each key was published."""
        payloads: Counter[bytes] = Counter()
        keys: Counter[str] = Counter()
        known = messages_of("application", max(number_of_messages(place) for place in self.sent))
        for (batch, number), times in self.sent.items():
            for message in known[number * batch : (number + 1) * batch]:
                payloads[message.payload] += times
                keys[message.key or ""] += times
        return payloads, keys

    # -- in the thread --------------------------------------------------------------------------------------------

    def _guarded(self) -> None:
        try:
            uvloop.run(self._run())
        except BaseException as error:  # noqa: BLE001  raised by `check` and `close`
            self._failure = error

    async def _run(self) -> None:
        async with AsyncClient(self._url) as client, asyncio.TaskGroup() as group:
            readers = [group.create_task(self._read(client, topic)) for topic in self.received]
            await self._feed(client)
            await asyncio.to_thread(self._may_end.wait)
            for reader in readers:
                reader.cancel()

    def _allowed(self) -> int:
        if self._unpaced:
            return min(self.processed().values()) + AHEAD
        began, before = self._since
        return before + int((time.monotonic() - began) * self._rate)

    async def _feed(self, client: AsyncClient) -> None:
        config = ProducerConfig(
            batching=False, send_timeout_ms=0, max_pending_messages=IN_FLIGHT, block_if_queue_full=True
        )
        producers: list[Producer] = []
        for topic in self._inputs:
            producer = await client.create_producer(topic, replace(config, name=f"soak of {topic}"))
            assert isinstance(producer, Producer)
            producers.append(producer)
        numbers = itertools.count()
        while not self._is_over:
            if self.published >= self._allowed():
                await asyncio.sleep(LOOK_S)
                continue
            for _ in range(AT_ONCE):
                number, entry = next(numbers), next(self._entries)
                producer = producers[number % len(producers)]
                await producer.ready()
                section = entry.numbered(producer.name, number)
                producer.send_sealed(section, number, entry.messages).add_done_callback(self._stored)
                self.sent[entry.place] += 1
                self.published += entry.messages
            await asyncio.sleep(0)
        for producer in producers:
            await producer.flush()
        self.is_stored = True

    def _stored(self, receipt: asyncio.Future[Any]) -> None:
        if not receipt.cancelled() and (error := receipt.exception()) is not None:
            self._failure = error

    async def _read(self, client: AsyncClient, topic: str) -> None:
        consumer: Any = await client.subscribe(
            topic, READER, ConsumerConfig(initial_position="Earliest", receiver_queue_size=5000)
        )
        counts = self.payloads[topic]
        last = (-1, -1)
        while True:
            entry = await consumer.receive_entry()
            while entry is not None:
                position = (entry.message_id.ledger_id, entry.message_id.entry_id)
                if position > last:
                    last = position
                    counts.update(entry.payloads)
                    self.received[topic] += len(entry.payloads)
                consumer.ack_entry(entry)
                await asyncio.sleep(0)
                entry = consumer.poll_entry()


def number_of_messages(place: tuple[int, int]) -> int:
    """Return the number of messages up to the end of an entry, among those of its batch size."""
    return place[0] * (place[1] + 1)
