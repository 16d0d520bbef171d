"""The cost of broker features, compared with not using them: Key_Shared, ten subscriptions, a schema.

Every rate is compared with a peer's in the same run, measured alternately on the same entries of the official client.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pulsar
import uvloop
from magnetar.client import AsyncClient, ClientConfig, ConsumerConfig
from pulsar.schema import BytesSchema, Schema

from tests.support.servers import Server

from .figure import Figure, Table
from .load import IN_FLIGHT, RECEIVER_QUEUE, TIMEOUT_S, Receipts, hold, official
from .machine import cpu_s
from .plan import Plan
from .real_input import APPLICATION, MANY, MANY_KEYS, TYPED, EncodedJson, OfficialInput, messages_of, official_input

CONSUMERS = 4
"""Number of consumers of one subscription."""
SHARED_RATE = 60_000
"""Expected consume rate, only used to determine the number of messages."""
KEY_SHARED_PERCENT = 70
SUBSCRIPTIONS = 10
FAN_OUT_RATES = {50: 100_000, 1: 8_000}
"""Expected publish rates for the fan-out by batch size, only used to determine the number of messages."""
TYPED_PERCENT = 95
PUBLISH_RATES = {50: 300_000, 1: 50_000}
"""Expected publish rates by batch size, only used to determine the number of messages."""
KINDS = (pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared)


@dataclass(frozen=True)
class Taken:
    """Result of one measurement.

    Attributes:
        rate: messages per second.
        cpu_us: CPU time of the broker per message, in microseconds.
    """

    rate: float
    cpu_us: float


def measure_key_shared(plan: Plan) -> Iterator[Figure]:
    """Compare Key_Shared with 10,000 keys to Shared: four consumers of the official client each, on one backlog."""
    given = official_input(plan, MANY_KEYS, 1)
    count = int(SHARED_RATE * plan.seconds)
    taken: dict[pulsar.ConsumerType, list[Taken]] = {kind: [] for kind in KINDS}
    with plan.server("broker") as server:
        hold(server.service_url, "keyed", *(f"{kind.name}-{i}" for kind in KINDS for i in range(plan.repeats)))
        given.fill(server.service_url, "keyed", count)
        for i in range(plan.repeats):
            for kind in KINDS if i % 2 else reversed(KINDS):
                taken[kind].append(_take(server, "keyed", f"{kind.name}-{i}", kind, count))
    shared, keyed = (_median(taken[kind]) for kind in KINDS)
    yield Figure(
        name=f"Key_Shared, {MANY:,} keys, {CONSUMERS} consumers of the official client",
        ours=keyed.rate,
        unit="messages/s",
        peer=shared.rate,
        peer_name="Shared, our broker",
        table=Table.OFFICIAL,
    )
    yield _share(f"Key_Shared over Shared, {MANY:,} keys", keyed, shared, KEY_SHARED_PERCENT)


def _median(taken: list[Taken]) -> Taken:
    return Taken(statistics.median(one.rate for one in taken), statistics.median(one.cpu_us for one in taken))


def _share(name: str, ours: Taken, other: Taken, target: float) -> Figure:
    return Figure(
        name=name,
        ours=ours.rate / other.rate * 100,
        unit="% of the rate without",
        target=target,
        note=f"{ours.rate:,.0f} beside {other.rate:,.0f} messages/s; broker {ours.cpu_us:.2f} beside"
        f" {other.cpu_us:.2f} µs CPU a message",
        table=Table.OFFICIAL,
    )


class Arrivals:
    """Messages received by the consumers of a subscription, in order."""

    def __init__(self, count: int) -> None:
        self.messages: list[pulsar.Message] = []
        self._count = count
        self._all = threading.Event()

    def __call__(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        # Recorded before the acknowledgement: until then, the next message of a moved key is not delivered.
        self.messages.append(message)
        consumer.acknowledge(message)
        if len(self.messages) >= self._count:
            self._all.set()

    def wait(self) -> None:
        """Wait until all messages have been received.

        Raises:
            TimeoutError: some messages were not received.
        """
        if not self._all.wait(TIMEOUT_S):
            raise TimeoutError(f"received {len(self.messages)} of {self._count} messages")

    def check(self, *, in_order: bool) -> None:
        """Raise unless each message was received once and, if required, in order for each key."""
        places = [(one.message_id().ledger_id(), one.message_id().entry_id()) for one in self.messages]
        if len(set(places)) != self._count or len(places) != self._count:
            raise AssertionError(
                f"received {len(places)} messages, {len(set(places))} of them distinct, of {self._count}"
            )
        if not in_order:
            return
        last: dict[str, tuple[int, int]] = {}
        for message, place in zip(self.messages, places, strict=True):
            key = message.partition_key()
            if last.get(key, (-1, -1)) > place:
                raise AssertionError(f"received {place} of key {key} after {last[key]}")
            last[key] = place


def _take(server: Server, topic: str, subscription: str, kind: pulsar.ConsumerType, count: int) -> Taken:
    arrivals = Arrivals(count)
    clients = [official(server.service_url) for _ in range(CONSUMERS)]
    try:
        before, began = cpu_s(server.pid), time.perf_counter()
        for client in clients:
            client.subscribe(topic, subscription, consumer_type=kind, message_listener=arrivals)
        arrivals.wait()
        took_s = time.perf_counter() - began
        used_s = cpu_s(server.pid) - before
    finally:
        for client in clients:
            client.close()
    arrivals.check(in_order=kind == pulsar.ConsumerType.KeyShared)
    return Taken(count / took_s, used_s / count * 1e6)


def measure_fan_out(plan: Plan) -> Iterator[Figure]:
    """Compare a topic with ten subscriptions, each receiving all messages, to one with a single subscription."""
    for batch, rate in FAN_OUT_RATES.items():
        given = official_input(plan, APPLICATION, batch)
        count = int(rate * plan.seconds) // batch * batch
        one, ten = [], []
        with plan.server("broker") as server:
            for i in range(plan.repeats):
                one.append(_fan_out(server, f"one-{i}", given, count, 1))
                ten.append(_fan_out(server, f"ten-{i}", given, count, SUBSCRIPTIONS))
        ours, peer = _median(ten), _median(one)
        yield Figure(
            name=f"fan-out to {SUBSCRIPTIONS} subscriptions, {given.name}, batches of {batch}: all that is delivered",
            ours=ours.rate,
            unit="messages/s",
            peer=peer.rate,
            peer_name="one subscription",
            note=f"published at {ours.rate / SUBSCRIPTIONS:,.0f} messages/s; broker {ours.cpu_us:.2f} µs CPU for each"
            f" that is delivered, publishing included, with one subscription {peer.cpu_us:.2f}",
            table=Table.OFFICIAL,
        )


def _fan_out(server: Server, topic: str, given: OfficialInput, count: int, subscriptions: int) -> Taken:
    names = [f"s{number}" for number in range(subscriptions)]
    hold(server.service_url, topic, *names)
    before, began = cpu_s(server.pid), time.perf_counter()
    readers = threading.Thread(target=lambda: uvloop.run(read_all(server.service_url, topic, names, count)))
    readers.start()
    given.fill(server.service_url, topic, count)
    readers.join()
    took_s, used_s = time.perf_counter() - began, cpu_s(server.pid) - before
    delivered = count * subscriptions
    return Taken(delivered / took_s, used_s / delivered * 1e6)


async def read_all(service_url: str, topic: str, subscriptions: list[str], count: int) -> None:
    """Receive and acknowledge the first `count` messages on each subscription, entry by entry without decoding."""
    config = ConsumerConfig(initial_position="Earliest", receiver_queue_size=RECEIVER_QUEUE)
    async with AsyncClient(service_url, ClientConfig()) as client, asyncio.timeout(TIMEOUT_S):

        async def read(subscription: str) -> None:
            consumer = await client.subscribe(topic, subscription, config)
            received = 0
            while received < count:
                entry = await consumer.receive_entry()
                received += entry.num_messages
                consumer.ack_entry(entry)
            if received != count:
                raise AssertionError(f"{subscription} received {received} of {count} messages")
            await consumer.close()

        async with asyncio.TaskGroup() as group:
            for subscription in subscriptions:
                group.create_task(read(subscription))


def measure_schema(plan: Plan) -> Iterator[Figure]:
    """Compare publishing with and without a JSON schema: the same messages, with the official client."""
    for batch, rate in PUBLISH_RATES.items():
        count = int(rate * plan.seconds) // batch * batch
        inputs = [official_input(plan, shape, batch) for shape in (APPLICATION, TYPED)]
        taken: dict[str, list[Taken]] = {given.name: [] for given in inputs}
        with plan.server("broker") as server:
            for i in range(plan.repeats):
                for given in inputs if i % 2 else reversed(inputs):
                    taken[given.name].append(_publish(server, f"{batch}-{i}-{given.name[-3:]}", given, count))
        plain, typed = (_median(taken[given.name]) for given in inputs)
        name = f"publish under a JSON schema over publish without, batches of {batch}"
        yield _share(f"{name}, entries of the official client", typed, plain, TYPED_PERCENT)
    yield _live_schema(plan)


def _publish(server: Server, topic: str, given: OfficialInput, count: int) -> Taken:
    hold(server.service_url, topic, "keep")
    before = cpu_s(server.pid)
    took_s = given.publish(server.service_url, topic, count)
    return Taken(count / took_s, (cpu_s(server.pid) - before) / count * 1e6)


def _live_schema(plan: Plan) -> Figure:
    """Compare them with live encoding by the official client, which costs more than the broker."""
    plain, typed = [], []
    with plan.server("broker") as server:
        for i in range(plan.repeats):
            plain.append(_official_publish(server, f"plain-{i}", BytesSchema(), plan.seconds))
            typed.append(_official_publish(server, f"typed-{i}", EncodedJson(), plan.seconds))
    name = "publish under a JSON schema over publish without, batches of 50, the official client itself"
    return _share(name, _median(typed), _median(plain), TYPED_PERCENT)


def _official_publish(server: Server, topic: str, schema: Schema, seconds: float) -> Taken:
    payloads = [message.payload for message in messages_of(APPLICATION, 1000)]
    client = official(server.service_url)
    try:
        producer = client.create_producer(
            topic,
            schema=schema,
            batching_enabled=True,
            batching_max_messages=50,
            max_pending_messages=IN_FLIGHT,
            block_if_queue_full=True,
        )
        receipts, sent = Receipts(), 0
        before, began = cpu_s(server.pid), time.perf_counter()
        while time.perf_counter() < began + seconds:
            for payload in payloads:
                producer.send_async(payload, receipts)
            sent += len(payloads)
        producer.flush()
        receipts.wait_for(sent)
        return Taken(sent / (time.perf_counter() - began), (cpu_s(server.pid) - before) / sent * 1e6)
    finally:
        client.close()
