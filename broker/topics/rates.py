"""Rates for statistics, calculated from counters over the last period."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from .maintenance import TOPICS_PER_TURN

if TYPE_CHECKING:
    from .topic import Topic

Alone = Callable[["Topic"], AbstractContextManager[object]]


class Meter:
    """Calculates the rates of several counters.

    Attributes:
        rates: increments per second in the last full period; 0 before the end of the first one.
    """

    __slots__ = ("_last", "rates")

    def __init__(self, counters: int):
        self._last: tuple[int, ...] = (0,) * counters
        self.rates: tuple[float, ...] = (0.0,) * counters

    def tick(self, counters: tuple[int, ...], period_s: float) -> None:
        """Update the rates at the end of a period."""
        self.rates = tuple((new - old) / period_s for new, old in zip(counters, self._last, strict=True))
        self._last = counters


class Rates:
    """Updates the meters of all topics with traffic."""

    def __init__(self) -> None:
        self._moving: set[Topic] = set()

    async def update(self, topics: Iterable[Topic], period_s: float, alone: Alone = nullcontext) -> None:
        """Update all meters at the end of a period.

        Args:
            topics: topics whose counters may have changed.
            period_s: length of the period.
            alone: returns a context manager for each topic, which isolates failures.

        Cancellation: some meters are not updated.
        """
        moving = set(topics)
        due, self._moving = moving | self._moving, moving  # a topic that became idle is updated once more, to rate 0
        for number, topic in enumerate(due):
            if number % TOPICS_PER_TURN == TOPICS_PER_TURN - 1:
                await asyncio.sleep(0)
            with alone(topic):
                _tick(topic, period_s)


def _tick(topic: Topic, period_s: float) -> None:
    counters = topic.producers.messages_in, topic.producers.bytes_in, topic.messages_out, topic.bytes_out
    topic.meter.tick(counters, period_s)
    topic.tick_drops(period_s)
    for producer in topic.producers.values():
        producer.meter.tick((producer.messages_in, producer.bytes_in), period_s)
    for subscription in topic.subscriptions.values():
        subscription.meter.tick(subscription.counters, period_s)
        for consumer in subscription.consumers:
            consumer.meter.tick(consumer.counters, period_s)
