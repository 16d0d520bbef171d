"""A million delayed messages of the official client: the cost of receiving and of delivering them.

A million messages are published with random delivery times within the next hour, while a connected consumer receives
none of them. The broker is restarted, and reads the topic to find the delayed messages; the resulting increase in
memory is reported. Then delayed delivery is disabled for the namespace, which makes all of them due (the broker checks
this at least every ten seconds; the rate is measured from the first message to the last).

The delay beyond the delivery time is measured separately, with fewer messages that become due while the consumer waits.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import psutil
import pulsar

from tests.support.servers import Server
from tests.support.waiting import wait_for

from .figure import Figure, Table
from .load import IN_FLIGHT, Receipts, hold, official
from .machine import cpu_s, usage
from .plan import Plan
from .real_input import APPLICATION, SEED, messages_of

COUNT, QUICK_COUNT = 1_000_000, 50_000
PLAIN_SHARE = 10
"""Ratio of delayed messages to those published without a delay for comparison."""
WITHIN_MS = 3600_000
MARGIN_MS = 600_000
"""Time until the first message is due, in milliseconds; publishing takes less."""
TIMED, QUICK_TIMED = 50_000, 10_000
TIMED_AFTER_MS, TIMED_WITHIN_MS = 10_000, 10_000
TOPIC = "delayed"
DISTINCT = 10_000
TIMEOUT_S = 600.0
TICK_MS = 1000
"""Precision of delayed delivery, in milliseconds; the broker's default, as in Pulsar."""


def measure_delayed(plan: Plan) -> Iterator[Figure]:
    """Measure publishing, tracking and delivering a million delayed messages; then the delay of messages."""
    with plan.server("broker") as server:
        yield from _million(server, QUICK_COUNT if plan.is_quick else COUNT)
    with plan.server("broker") as server:
        yield from _lateness(server, QUICK_TIMED if plan.is_quick else TIMED)


def _million(server: Server, count: int) -> Iterator[Figure]:
    url = server.service_url
    for topic in (TOPIC, "plain"):
        hold(url, topic, "s")
    plain = _publish(url, "plain", [None] * (count // PLAIN_SHARE))
    rng = random.Random(SEED)
    first_ms = _now_ms() + MARGIN_MS
    with Delayed(server) as consumer:
        rate = _publish(url, TOPIC, [first_ms + rng.randrange(WITHIN_MS) for _ in range(count)])
        wait_for(lambda: consumer.waiting() == count, f"{count} messages that wait", TIMEOUT_S)
        if consumer.arrived:
            raise AssertionError(f"received {len(consumer.arrived)} messages {MARGIN_MS / 1000:g} s too early")
    yield Figure(
        name=f"publish {count:,} messages to be delivered within an hour, one by one",
        ours=rate,
        unit="messages/s",
        peer=plain,
        peer_name="without a delay; both by the official client",
        table=Table.OFFICIAL,
    )
    server.stop()
    server.start()
    before_mib = _pss_mib(server)
    with Delayed(server) as consumer:
        began = time.perf_counter()
        wait_for(lambda: consumer.waiting() == count, f"{count} messages that wait", TIMEOUT_S)
        took_s = time.perf_counter() - began
        grown_mib = _pss_mib(server) - before_mib
        yield Figure(
            name=f"{count:,} delayed messages: memory of the broker, each",
            ours=grown_mib * 2**20 / count,
            unit="bytes",
            more_is_better=False,
            note=f"grown by {grown_mib:.0f} MiB (PSS), the index by its own count"
            f" {consumer.stats()['delayedMessageIndexSizeInBytes'] / 2**20:.1f} MiB",
        )
        yield Figure(
            name=f"{count:,} delayed messages: found again after a restart",
            ours=count / took_s,
            unit="messages/s",
            note=f"{took_s:.1f} s",
        )
        before = cpu_s(server.pid)
        consumer.make_all_due()
        consumer.wait(count)
        took_s, used_s = consumer.took_s(), cpu_s(server.pid) - before
    yield Figure(
        name=f"{count:,} delayed messages, all due: delivery, one by one",
        ours=count / took_s,
        unit="messages/s",
        note=f"to one consumer of the official client; each came once; broker {used_s / count * 1e6:.1f} µs CPU each",
        table=Table.OFFICIAL,
    )


def _lateness(server: Server, count: int) -> Iterator[Figure]:
    hold(server.service_url, TOPIC, "s")
    rng = random.Random(SEED)
    with Delayed(server) as consumer:
        first_ms = _now_ms() + TIMED_AFTER_MS
        times = [first_ms + rng.randrange(TIMED_WITHIN_MS) for _ in range(count)]
        _publish(server.service_url, TOPIC, times)
        if _now_ms() > first_ms:
            raise RuntimeError(f"publishing {count} messages took longer than {TIMED_AFTER_MS / 1000:g} s")
        consumer.wait(count)
        late_ms = [arrival.at_ms - arrival.due_ms for arrival in consumer.arrived]
    if min(late_ms) < 0:
        raise AssertionError(f"received a message {-min(late_ms)} ms too early")
    yield Figure(
        name=f"delayed messages, {count / TIMED_WITHIN_MS * 1000:,.0f} due a second: how late, p99",
        ours=statistics.quantiles(late_ms, n=100)[98],
        unit="ms",
        more_is_better=False,
        note=f"p50 {statistics.median(late_ms):.0f} ms, worst {max(late_ms)} ms; what is due within {TICK_MS} ms goes"
        " out together; none too early",
        table=Table.OFFICIAL,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _pss_mib(server: Server) -> float:
    return usage(psutil.Process(server.pid)).pss_mib


def _publish(service_url: str, topic: str, times_ms: list[int] | list[None]) -> float:
    """Publish a message for each time with the official client; return messages per second."""
    messages = messages_of(APPLICATION, DISTINCT)
    client = official(service_url)
    try:
        producer = client.create_producer(
            topic, batching_enabled=False, max_pending_messages=IN_FLIGHT, block_if_queue_full=True
        )
        receipts = Receipts()
        began = time.perf_counter()
        for number, time_ms in enumerate(times_ms):
            message = messages[number % DISTINCT]
            producer.send_async(
                message.payload,
                receipts,
                partition_key=message.key,
                properties=message.properties,
                event_timestamp=time_ms or message.event_time_ms,
                deliver_at=time_ms,
            )
        producer.flush()
        receipts.wait_for(len(times_ms))
        return len(times_ms) / (time.perf_counter() - began)
    finally:
        client.close()


class Arrival(NamedTuple):
    """A received message: time of receipt and due time, in milliseconds since 1970, and its position."""

    at_ms: int
    due_ms: int
    ledger_id: int
    entry_id: int


class Delayed:
    """A consumer of the topic's shared subscription, and the broker's statistics for the subscription.

    Attributes:
        arrived: received messages, in order.
    """

    def __init__(self, server: Server) -> None:
        self.arrived: list[Arrival] = []
        self._wanted = 0
        self._all = threading.Event()
        self._http = httpx.Client(base_url=f"{server.web_url}/admin/v2/", timeout=60)
        self._client = official(server.service_url)

    def __enter__(self) -> Delayed:
        self._client.subscribe(TOPIC, "s", consumer_type=pulsar.ConsumerType.Shared, message_listener=self._arrive)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._client.close()
        self._http.close()

    def _arrive(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        place = message.message_id()
        self.arrived.append(Arrival(_now_ms(), message.event_timestamp(), place.ledger_id(), place.entry_id()))
        consumer.acknowledge(message)
        if self._wanted and len(self.arrived) >= self._wanted:
            self._all.set()

    def stats(self) -> dict[str, Any]:
        """Return the broker's statistics for the subscription."""
        answer = self._http.get(f"persistent/public/default/{TOPIC}/stats").raise_for_status()
        return dict(answer.json()["subscriptions"]["s"])

    def waiting(self) -> int:
        """Return the number of delayed messages tracked by the broker."""
        return int(self.stats()["msgDelayed"])

    def make_all_due(self) -> None:
        """Disable delayed delivery, which makes all messages due."""
        policy = {"active": False, "tickTime": TICK_MS}
        self._http.post("namespaces/public/default/delayedDelivery", json=policy).raise_for_status()

    def took_s(self) -> float:
        """Return the seconds from the first message to the last."""
        return (self.arrived[-1].at_ms - self.arrived[0].at_ms) / 1000

    def wait(self, count: int) -> None:
        """Wait until `count` messages have been received.

        Raises:
            TimeoutError: the messages were not received in time.
            AssertionError: a message was received twice.
        """
        self._wanted = count
        if len(self.arrived) < count and not self._all.wait(TIMEOUT_S):
            raise TimeoutError(f"received {len(self.arrived)} of {count} messages")
        places = {(one.ledger_id, one.entry_id) for one in self.arrived}
        if len(places) != count or len(self.arrived) != count:
            raise AssertionError(f"received {len(self.arrived)} messages, {len(places)} of them distinct, of {count}")
