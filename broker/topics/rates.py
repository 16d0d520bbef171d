"""Rates for statistics: what counters gained over the last period."""

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
    """The rates of a few counters.

    Attributes:
        rates: per second, over the last full period; zeros before it.
    """

    __slots__ = ("_last", "rates")

    def __init__(self, counters: int):
        self._last: tuple[int, ...] = (0,) * counters
        self.rates: tuple[float, ...] = (0.0,) * counters

    def tick(self, counters: tuple[int, ...], period_s: float) -> None:
        """Take the counters at the end of a period."""
        self.rates = tuple((new - old) / period_s for new, old in zip(counters, self._last, strict=True))
        self._last = counters


class Rates:
    """Keeps the meters of everything that has one. Topics where nothing moves are not looked at."""

    def __init__(self) -> None:
        self._moving: set[Topic] = set()

    async def update(self, topics: Iterable[Topic], period_s: float, alone: Alone = nullcontext) -> None:
        """Take all counters at the end of a period.

        Args:
            topics: those of which a counter may have moved.
            period_s: its length.
            alone: what a topic is looked at within, so that its failure is not that of the others.

        Cancellation: some are not taken.
        """
        moving = set(topics)
        due, self._moving = moving | self._moving, moving  # what does not move any more has a last look, and rate 0
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
