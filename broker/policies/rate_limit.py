"""Token buckets that compute how much may pass now, and how long to wait otherwise.

A bucket holds the amount for one period and is refilled continuously. Any amount may be taken from a non-empty bucket,
even more than it holds; nothing passes then until the deficit is refilled. So even a batch larger than the bucket
passes, and the average rate is met for messages of any size. Nothing here blocks.

Source: Pulsar's publish and dispatch rate limiters (PIP-322).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable

from .effective import Rate, SharedLimits

SHORTEST_WAIT_S = 0.005
"""Minimum wait, which avoids a timer per message at high rates."""
LONGEST_WAIT_S = 1.0
"""Maximum wait, even for a large deficit, so that a changed rate takes effect soon."""
NO_LIMIT = 1 << 62


class TokenBucket:
    """Token bucket for one quantity.

    Attributes:
        tokens: amount that may pass now; negative after a larger amount passed.
    """

    __slots__ = ("_amount", "_at_s", "_period_s", "tokens")

    def __init__(self, amount: float, period_s: float, now_s: float) -> None:
        """Create a full bucket that admits ``amount`` per ``period_s``."""
        self._amount = amount
        self._period_s = period_s
        self._at_s = now_s
        self.tokens = amount

    def fill(self, now_s: float, extra_per_s: float = 0.0) -> None:
        """Refill the bucket for the time since the last call; ``extra_per_s`` is added to the rate."""
        amount = self._amount + extra_per_s * self._period_s
        passed_s = max(now_s - self._at_s, 0.0)
        self._at_s = now_s
        self.tokens = min(self.tokens + passed_s * amount / self._period_s, amount)

    @property
    def wait_s(self) -> float:
        """Time to wait before the next check, or 0 if something may pass now."""
        if self.tokens > 0:
            return 0.0
        return min(max(-self.tokens * self._period_s / self._amount, SHORTEST_WAIT_S), LONGEST_WAIT_S)


class RateLimit:
    """Rate limit for messages, bytes, or both.

    Attributes:
        rate: the configured rate.
        stops: number of times that a caller had to wait.
        stopped_by: quantity that caused the last wait, Msg or Bytes.
    """

    def __init__(
        self, rate: Rate, clock: Callable[[], float], published: Callable[[], tuple[float, float]] | None = None
    ) -> None:
        """Create a limit with full buckets.

        Args:
            rate: limit for messages, bytes or both.
            clock: returns monotonic seconds.
            published: returns the messages and bytes per second to add to a relative rate.
        """
        self.rate = rate
        self.stops = 0
        self.stopped_by = "Msg"
        self._clock = clock
        self._published = published if rate.is_relative else None
        now_s = clock()
        self._messages = TokenBucket(rate.messages, rate.period_s, now_s) if rate.messages else None
        self._bytes = TokenBucket(rate.bytes, rate.period_s, now_s) if rate.bytes else None

    def wait_s(self) -> float:
        """Return the time to wait before the next check, or 0 if something may pass now."""
        now_s = self._clock()
        extra = self._published() if self._published is not None else (0.0, 0.0)
        longest_s = 0.0
        for what, bucket, more in (("Msg", self._messages, extra[0]), ("Bytes", self._bytes, extra[1])):
            if bucket is not None:
                bucket.fill(now_s, more)
                if bucket.wait_s > longest_s:
                    longest_s, self.stopped_by = bucket.wait_s, what
        self.stops += longest_s > 0
        return longest_s

    def take(self, messages: int, bytes_: int) -> None:
        """Charge an amount that passed."""
        if self._messages is not None:
            self._messages.tokens -= messages
        if self._bytes is not None:
            self._bytes.tokens -= bytes_

    def room(self) -> tuple[int, int]:
        """Return how many messages and bytes may pass, at least 1 each. Call `wait_s` first."""
        messages = NO_LIMIT if self._messages is None else max(int(self._messages.tokens), 1)
        bytes_ = NO_LIMIT if self._bytes is None else max(int(self._bytes.tokens), 1)
        return messages, bytes_


class SharedRateLimit(RateLimit):
    """Rate limit shared by several topics."""

    def wait_s(self) -> float:
        """Return the time to wait before the next check, with jitter.

        Without jitter, a caller that was served once would always be the first to check, and others would starve.
        """
        wait_s = super().wait_s()
        return wait_s * random.uniform(1.0, 1.5) if wait_s else 0.0  # noqa: S311 - fairness, not a secret


class SharedRates:
    """Limits shared by topics of a broker, one for each kind and resource group."""

    def __init__(self) -> None:
        self._limits: dict[tuple[str, str], SharedRateLimit] = {}

    def publish_limits(self, shared: Iterable[SharedLimits], clock: Callable[[], float]) -> tuple[SharedRateLimit, ...]:
        """Return the publish limits for ``shared`` limits of `EffectivePolicies`."""
        return self._found("publish", [(limits.group, limits.publish_rate) for limits in shared], clock)

    def dispatch_limits(
        self, shared: Iterable[SharedLimits], clock: Callable[[], float]
    ) -> tuple[SharedRateLimit, ...]:
        """Return the dispatch limits for ``shared`` limits of `EffectivePolicies`."""
        return self._found("dispatch", [(limits.group, limits.dispatch_rate) for limits in shared], clock)

    def _found(
        self, kind: str, rates: list[tuple[str, Rate]], clock: Callable[[], float]
    ) -> tuple[SharedRateLimit, ...]:
        found = []
        for group, rate in rates:
            if not rate.is_limit:
                continue
            limit = self._limits.get((kind, group))
            if limit is None or limit.rate != rate:
                limit = self._limits[kind, group] = SharedRateLimit(rate, clock)
            found.append(limit)
        return tuple(found)


MAX_SUBSCRIBERS = 10_000
"""Maximum number of consumers per topic whose subscribe requests are counted; beyond it, the oldest is evicted."""


class SubscribeLimit:
    """Rate limit for subscribe requests of each consumer."""

    def __init__(self, rate: Rate, clock: Callable[[], float]) -> None:
        self.rate = rate
        self._clock = clock
        self._ends_s = clock() + rate.period_s
        self._times: dict[Hashable, int] = {}

    def admits(self, consumer: Hashable) -> bool:
        """Return whether a consumer may subscribe now, and count the request if so."""
        now_s = self._clock()
        if now_s >= self._ends_s:
            self._times.clear()
            self._ends_s = now_s + self.rate.period_s
        times = self._times.get(consumer, 0)
        if times >= self.rate.messages:
            return False
        if not times and len(self._times) >= MAX_SUBSCRIBERS:
            del self._times[next(iter(self._times))]
        self._times[consumer] = times + 1
        return True


def follow(
    limit: RateLimit | None,
    rate: Rate,
    clock: Callable[[], float],
    published: Callable[[], tuple[float, float]] | None = None,
) -> RateLimit | None:
    """Return the limit for a rate, which is the existing one if the rate is unchanged, or None if unlimited."""
    if not rate.is_limit:
        return None
    return limit if limit is not None and limit.rate == rate else RateLimit(rate, clock, published)
