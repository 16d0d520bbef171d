"""Producer and consumer statistics, which are collected if the client's ``stats_interval_s`` is set.

Counters start when the producer or consumer is created; rates are for the last complete interval.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakSet

from ..errors import InvalidConfig
from ..tasks import TaskSet

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStatistics:
    """Statistics of a producer.

    Attributes:
        messages_sent: messages in closed entries, sent or waiting for a connection.
        bytes_sent: size of these entries, as the broker stores them.
        messages_stored: messages confirmed by the broker.
        messages_failed: messages that failed.
        messages_pending: messages sent but not confirmed, plus messages in the open batch.
        messages_per_s: messages stored per second in the last interval.
        bytes_per_s: bytes stored per second in the last interval.
        latency_mean_ms: mean time from the send call for an entry's first message to its receipt, in the last interval.
        latency_max_ms: maximum of these times.
    """

    messages_sent: int
    bytes_sent: int
    messages_stored: int
    messages_failed: int
    messages_pending: int
    messages_per_s: float
    bytes_per_s: float
    latency_mean_ms: float
    latency_max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatistics:
    """Statistics of a consumer.

    Attributes:
        messages_received: messages received by the application.
        bytes_received: size of their entries, as stored.
        acknowledged: individual acknowledgements of messages or entries.
        acknowledged_up_to: cumulative acknowledgements.
        refused: negative acknowledgements.
        timed_out: entries redelivered because they were not acknowledged in time.
        dead_letters: messages sent to the dead letter topic.
        messages_queued: messages waiting in the receiver queue.
        messages_per_s: messages received by the application per second in the last interval.
        bytes_per_s: bytes received by the application per second in the last interval.
    """

    messages_received: int
    bytes_received: int
    acknowledged: int
    acknowledged_up_to: int
    refused: int
    timed_out: int
    dead_letters: int
    messages_queued: int
    messages_per_s: float
    bytes_per_s: float


def statistics_refusal() -> InvalidConfig:
    """Return the error for a producer or consumer without statistics."""
    return InvalidConfig("statistics are disabled: create the client with ClientConfig(stats_interval_s=60)")


class Rates:
    """Number of messages and bytes, in total and in the last interval."""

    __slots__ = ("_bytes_before", "_messages_before", "bytes", "bytes_per_s", "messages", "messages_per_s")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.messages_per_s = 0.0
        self.bytes_per_s = 0.0
        self._messages_before = 0
        self._bytes_before = 0

    def add(self, messages: int, size: int) -> None:
        """Count messages and their bytes."""
        self.messages += messages
        self.bytes += size

    def end_interval(self, seconds: float) -> None:
        """Start the next interval; the previous one took ``seconds``."""
        self.messages_per_s = (self.messages - self._messages_before) / seconds
        self.bytes_per_s = (self.bytes - self._bytes_before) / seconds
        self._messages_before, self._bytes_before = self.messages, self.bytes


class ProducerCounts:
    """The counters of a producer."""

    def __init__(self) -> None:
        self.sent = Rates()
        self.stored = Rates()
        self.failed = 0
        self._latencies = [0, 0.0, 0.0]
        self._latency_mean_s = 0.0
        self._latency_max_s = 0.0

    def took(self, latency_s: float) -> None:
        """Record the latency of a stored entry."""
        self._latencies[0] += 1
        self._latencies[1] += latency_s
        self._latencies[2] = max(self._latencies[2], latency_s)

    def end_interval(self, seconds: float) -> None:
        """Start the next interval; the previous one took ``seconds``."""
        self.sent.end_interval(seconds)
        self.stored.end_interval(seconds)
        count, total, longest = self._latencies
        self._latency_mean_s, self._latency_max_s = total / count if count else 0.0, longest
        self._latencies = [0, 0.0, 0.0]

    def statistics(self, pending: int) -> ProducerStatistics:
        """Return the statistics; ``pending`` is the number of pending messages."""
        return ProducerStatistics(
            messages_sent=self.sent.messages,
            bytes_sent=self.sent.bytes,
            messages_stored=self.stored.messages,
            messages_failed=self.failed,
            messages_pending=pending,
            messages_per_s=self.stored.messages_per_s,
            bytes_per_s=self.stored.bytes_per_s,
            latency_mean_ms=self._latency_mean_s * 1000,
            latency_max_ms=self._latency_max_s * 1000,
        )


class ConsumerCounts:
    """The counters of a consumer."""

    def __init__(self) -> None:
        self.received = Rates()
        self.acknowledged = 0
        self.acknowledged_up_to = 0
        self.refused = 0
        self.timed_out = 0
        self.dead_letters = 0

    def end_interval(self, seconds: float) -> None:
        """Start the next interval; the previous one took ``seconds``."""
        self.received.end_interval(seconds)

    def statistics(self, queued: int) -> ConsumerStatistics:
        """Return the statistics; ``queued`` is the number of queued messages."""
        return ConsumerStatistics(
            messages_received=self.received.messages,
            bytes_received=self.received.bytes,
            acknowledged=self.acknowledged,
            acknowledged_up_to=self.acknowledged_up_to,
            refused=self.refused,
            timed_out=self.timed_out,
            dead_letters=self.dead_letters,
            messages_queued=queued,
            messages_per_s=self.received.messages_per_s,
            bytes_per_s=self.received.bytes_per_s,
        )


class Counting(Protocol):
    """A producer or consumer with statistics."""

    @property
    def counts(self) -> ProducerCounts | ConsumerCounts | None:
        """The counters, or None if disabled."""

    def statistics(self) -> ProducerStatistics | ConsumerStatistics:
        """Return the statistics."""


class Intervals:
    """The statistics intervals of a client, shared by its producers and consumers. Each ends by logging statistics.

    Attributes:
        interval_s: interval in seconds; 0 if statistics are disabled.
    """

    def __init__(self, interval_s: float, tasks: TaskSet) -> None:
        """Create intervals that start when the first producer or consumer is added.

        Args:
            interval_s: interval in seconds; 0 disables statistics.
            tasks: the client's tasks.
        """
        self.interval_s = interval_s
        self._tasks = tasks
        self._counting: WeakSet[Counting] = WeakSet()
        self._task: asyncio.Task[None] | None = None

    def add(self, counting: Counting) -> None:
        """Include a producer or consumer, if statistics are enabled."""
        if not self.interval_s:
            return
        self._counting.add(counting)
        if self._task is None:
            self._task = self._tasks.keep(self._end_intervals, "statistics", longest_pause_s=self.interval_s)

    async def _end_intervals(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            await asyncio.sleep(self.interval_s)
            for one in list(self._counting):
                if (counts := one.counts) is not None:
                    counts.end_interval(loop.time() - began_s)
                    log.info("%r: %r", one, one.statistics())
