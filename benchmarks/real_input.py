"""Realistic input, written by the official Python client: two shapes, three batch sizes.

*Plain* messages are 100 equal letters each; *application* messages are JSON of 40 to 110 bytes with a partition key, an
event time and one property. Two more shapes are application messages with 10,000 keys instead of 1000, and with a JSON
schema. The shapes of `json_documents` are for functions that take dicts. The official client writes about ten thousand
messages once per shape and batch size, which takes a second or two, and the entries are saved to a file. Topics are
then filled by sending these entries repeatedly, including checksum and metadata, so readers only see bytes of the
official client. Input from our own client's encoder has the same interface.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import random
import string
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pulsar
import uvloop
from magnetar.client import (
    AsyncClient,
    ClientConfig,
    ConsumerConfig,
    Producer,
    ProducerConfig,
)
from pulsar.schema import BytesSchema, JsonSchema, Long, Record, String

from . import json_documents
from .figure import Table
from .load import IN_FLIGHT, Receipts, hold, official, payloads_of, publish_entries
from .plan import Plan

PLAIN, APPLICATION, OWN = "plain", "application", "own encoder"
SHAPES = (PLAIN, APPLICATION)
MANY_KEYS, TYPED = "application with 10,000 keys", "application with a schema"
BATCHES = (1000, 50, 1)
DISTINCT = {1000: 60_000, 50: 30_000, 1: 10_000}
"""Number of messages written by the official client; longer input repeats them."""
SIZE_BYTES = 100
JSON_BYTES_MIN, JSON_BYTES_MAX = 40, 110
DISTINCT_MANY_KEYS = 40_000
"""Number of messages for `MANY_KEYS`, in which all but 2 % of the random keys occur."""
DISTINCT_DOCUMENTS = 20_000
"""Number of messages for the shapes of `json_documents`."""
KEYS, MANY = 1000, 10_000
SEED = 14
FIRST_EVENT_MS = 1_700_000_000_000
BATCH_WAIT_MS = 10_000
"""Maximum batch delay, so that only full batches are sent: filling one of 1000 takes longer in Python than the usual 10
ms.
"""
AT_ONCE = 500_000
"""Number of lines in memory while a topic is filled."""
READ_TIMEOUT_S = 60.0
_HEAD = struct.Struct(">II")  # number of messages in an entry, bytes of its payload section


class Input(Protocol):
    """Input that fills a topic.

    Attributes:
        name: name in figures: a shape, or `OWN`.
        batch: number of messages per entry.
        table: table of its figures.
    """

    @property
    def name(self) -> str: ...

    @property
    def batch(self) -> int: ...

    @property
    def table(self) -> Table: ...

    def payloads(self, count: int) -> list[bytes]:
        """Return the first `count` payloads, in order."""

    def total_bytes(self, count: int) -> int:
        """Return the size of the first `count` payloads."""

    def fill(self, service_url: str, topic: str, count: int) -> None:
        """Publish the first `count` messages, a multiple of `batch`."""


@dataclass(frozen=True)
class OwnInput:
    """Numbered lines of one size, without keys or sequence ids, encoded by our client."""

    batch: int
    size_bytes: int = SIZE_BYTES
    name: str = OWN
    table: Table = Table.OWN

    def payloads(self, count: int) -> list[bytes]:
        """Return the first `count` lines."""
        return payloads_of(self.size_bytes, count)

    def total_bytes(self, count: int) -> int:
        """Return the size of the first `count` lines."""
        return count * self.size_bytes

    def fill(self, service_url: str, topic: str, count: int) -> None:
        """Publish the first `count` lines."""
        for first in range(0, count, AT_ONCE):
            lines = payloads_of(self.size_bytes, min(AT_ONCE, count - first), first)
            publish_entries(service_url, topic, lines, self.batch)


@dataclass(frozen=True)
class Entry:
    """An entry sent by the official client: payload section and number of messages."""

    section: bytes
    messages: int


@dataclass(frozen=True)
class OfficialInput:
    """Entries of the official client, repeated."""

    name: str
    batch: int
    entries: Sequence[Entry]
    table: Table = Table.OFFICIAL

    def payloads(self, count: int) -> list[bytes]:
        """Return the first `count` payloads."""
        return [message.payload for message in self.messages(count)]

    def keys(self, count: int) -> list[str | None]:
        """Return the first `count` partition keys."""
        return [message.key for message in self.messages(count)]

    def messages(self, count: int) -> list[Message]:
        """Return the first `count` messages, repeating the written ones."""
        written = messages_of(self.name, distinct(self.name, self.batch))
        return list(itertools.islice(itertools.cycle(written), count))

    def total_bytes(self, count: int) -> int:
        """Return the size of the first `count` payloads."""
        return sum(map(len, self.payloads(count)))

    def fill(self, service_url: str, topic: str, count: int) -> None:
        """Send entries with `count` messages to the topic."""
        self.publish(service_url, topic, count)

    def publish(self, service_url: str, topic: str, count: int) -> float:
        """Send entries like `fill`; return the seconds from the first one to the last receipt."""
        if count % self.batch:
            raise ValueError(f"{count} messages are not a multiple of the batch size {self.batch}")
        is_typed = self.name == TYPED
        if is_typed:
            _give_schema(service_url, topic)
        entries = itertools.islice(itertools.cycle(self.entries), count // self.batch)
        return uvloop.run(_send(service_url, topic, entries, is_typed=is_typed))


@dataclass(frozen=True)
class Message:
    """A message as an application passes it to its client."""

    payload: bytes
    key: str | None = None
    event_time_ms: int | None = None
    properties: dict[str, str] | None = None


class _Event(Record):  # type: ignore[misc]  # the official client is untyped
    """The payload of an application message, as a schema class."""

    id = Long()
    user = String()
    note = String()


class EncodedJson(JsonSchema):  # type: ignore[misc]
    """The JSON schema of application messages, for producers of already encoded payloads."""

    def __init__(self) -> None:
        super().__init__(_Event)

    def encode(self, obj: bytes) -> bytes:
        """Return the payload unchanged."""
        return obj


def distinct(shape: str, batch: int) -> int:
    """Return the number of messages that the official client writes for a shape."""
    if shape in json_documents.SIZES_BYTES:
        return DISTINCT_DOCUMENTS
    return DISTINCT_MANY_KEYS if shape == MANY_KEYS else DISTINCT[batch]


@functools.cache
def messages_of(shape: str, count: int) -> Sequence[Message]:
    """Return the first `count` messages of a shape; deterministic."""
    if shape == PLAIN:
        letters = [letter.encode() * SIZE_BYTES for letter in string.ascii_letters]
        return [Message(letters[number % len(letters)]) for number in range(count)]
    rng = random.Random(SEED)
    if (size_bytes := json_documents.SIZES_BYTES.get(shape)) is not None:
        return [Message(json_documents.document(number, rng, size_bytes)) for number in range(count)]
    keys = MANY if shape == MANY_KEYS else KEYS
    return [_event(number, rng, keys) for number in range(count)]


def _event(number: int, rng: random.Random, keys: int) -> Message:
    user = f"u{rng.randrange(keys):03d}"
    payload = json.dumps({"id": number, "user": user, "note": ""}, separators=(",", ":"))
    missing = rng.randint(JSON_BYTES_MIN - len(payload), JSON_BYTES_MAX - len(payload))
    payload = payload.replace('"note":""', f'"note":"{"".join(rng.choices(string.ascii_lowercase, k=missing))}"')
    return Message(
        payload.encode(),
        key=user,
        event_time_ms=FIRST_EVENT_MS + number * 7,
        properties={"trace-id": f"{rng.getrandbits(64):016x}"},
    )


def inputs(plan: Plan, batch: int, *, own: bool = True) -> list[Input]:
    """Return the official client's input of each shape in batches of `batch`, and our own client's input."""
    found: list[Input] = [official_input(plan, shape, batch) for shape in SHAPES]
    return [*found, OwnInput(batch)] if own else found


def official_input(plan: Plan, shape: str, batch: int) -> OfficialInput:
    """Return the official client's input of a shape, which is written once for all benchmarks in a directory."""
    file = plan.directory / "official-input" / f"{shape}-{batch}".replace(" ", "-")
    if not file.exists():
        entries = _written(plan, shape, batch)
        file.parent.mkdir(exist_ok=True)
        whole = file.with_suffix(".part")
        whole.write_bytes(b"".join(_HEAD.pack(one.messages, len(one.section)) + one.section for one in entries))
        whole.rename(file)
    return OfficialInput(shape, batch, list(_read(file)))


def _read(file: Path) -> Iterator[Entry]:
    content = file.read_bytes()
    offset = 0
    while offset < len(content):
        messages, size_bytes = _HEAD.unpack_from(content, offset)
        offset += _HEAD.size
        yield Entry(content[offset : offset + size_bytes], messages)
        offset += size_bytes


def _written(plan: Plan, shape: str, batch: int) -> list[Entry]:
    messages = messages_of(shape, distinct(shape, batch))
    with plan.server("broker") as server:
        hold(server.service_url, "input", "keep")
        _publish(server.service_url, "input", messages, batch, is_typed=shape == TYPED)
        entries, payloads = uvloop.run(_entries(server.service_url, "input", len(messages)))
    sizes = {entry.messages for entry in entries}
    if sizes != {batch}:
        raise AssertionError(f"the official client sent entries of {sorted(sizes)} messages, not of {batch}")
    if payloads != [message.payload for message in messages]:
        raise AssertionError(f"the official client's entries of {shape} messages differ from its input")
    return entries


def _publish(service_url: str, topic: str, messages: Sequence[Message], batch: int, *, is_typed: bool) -> None:
    client = official(service_url)
    try:
        producer = client.create_producer(
            topic,
            schema=EncodedJson() if is_typed else BytesSchema(),
            batching_enabled=batch > 1,
            batching_max_messages=max(batch, 2),  # it rejects 1 even if batching is disabled
            batching_max_allowed_size_in_bytes=4 * 1024 * 1024,
            batching_max_publish_delay_ms=BATCH_WAIT_MS,
            batching_type=pulsar.BatchingType.Default,  # batches in order of arrival, not by key
            max_pending_messages=IN_FLIGHT,
            block_if_queue_full=True,
        )
        counter = Receipts()
        for message in messages:
            more: dict[str, Any] = {}
            if message.key is not None:
                more = {
                    "partition_key": message.key,
                    "event_timestamp": message.event_time_ms,
                    "properties": message.properties,
                }
            producer.send_async(message.payload, counter, **more)
        producer.flush()
        counter.wait_for(len(messages))
    finally:
        client.close()


async def _entries(service_url: str, topic: str, count: int) -> tuple[list[Entry], list[bytes]]:
    entries: list[Entry] = []
    payloads: list[bytes] = []
    config = ConsumerConfig(initial_position="Earliest")
    async with AsyncClient(service_url, ClientConfig()) as client, asyncio.timeout(READ_TIMEOUT_S):
        consumer = await client.subscribe(topic, "keep", config)
        while len(payloads) < count:
            entry = await consumer.receive_entry()
            entries.append(
                Entry(bytes(entry._payload), entry.num_messages)
            )  # get the entry before decoding, which discards it
            payloads += entry.payloads
            consumer.ack_entry(entry)
    return entries, payloads


def _give_schema(service_url: str, topic: str) -> None:
    """Register the schema of `TYPED` with the official client."""
    client = official(service_url)
    try:
        client.create_producer(topic, schema=EncodedJson()).close()
    finally:
        client.close()


async def _send(service_url: str, topic: str, entries: Iterator[Entry], *, is_typed: bool) -> float:
    config = ProducerConfig(batching=False, max_pending_messages=IN_FLIGHT, block_if_queue_full=True)
    async with AsyncClient(service_url, ClientConfig()) as client:
        if is_typed:
            # Not imported at the top: `benchmarks.against` may compare with a tree that does not have it yet.
            from magnetar.client import AutoProduceBytesSchema

            producer = (await client.create_producer(topic, config, schema=AutoProduceBytesSchema())).producer
        else:
            producer = await client.create_producer(topic, config)
        assert isinstance(producer, Producer), f"{topic} is partitioned"
        began = time.perf_counter()
        for number, entry in enumerate(entries):
            await producer.ready()
            producer.send_sealed(entry.section, number, entry.messages)
        await producer.flush()
        took_s = time.perf_counter() - began
        await producer.close()
    return took_s
