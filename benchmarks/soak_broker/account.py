"""Tracks the published messages that a subscription has settled: acknowledged, or found among its dead letters.

Like a cursor, it stores for each key the number up to which all messages are settled, and individually settled ones
above it. So its memory use is constant, and redelivered messages are detected. If messages are ordered, there are no
individually settled ones: a message acknowledged before its predecessor violates the order of its key.

It is called on several threads, as the official client's listeners have their own.
"""

from __future__ import annotations

import threading

from .topics import Body, Subscription, Topic

EXAMPLES = 3


class Faults:
    """Detected errors: counted by kind, with the first occurrences as examples."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._examples: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    def add(self, kind: str, example: str) -> None:
        """Record an error."""
        with self._lock:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            shown = self._examples.setdefault(kind, [])
            if len(shown) < EXAMPLES:
                shown.append(example)

    def lines(self) -> list[tuple[str, str]]:
        """Return a description of each kind of error."""
        return [(kind, f"{count:,} times: {'; '.join(self._examples[kind])}") for kind, count in self.counts.items()]


class Account:
    """The settled messages of one subscription.

    Attributes:
        topic: topic of the subscription.
        subscription: the subscription.
        dead: number of distinct messages in the dead letter topic.
        again: number of messages delivered after they were settled.
    """

    def __init__(self, topic: Topic, subscription: Subscription, faults: Faults) -> None:
        self.topic = topic
        self.subscription = subscription
        self.dead = 0
        self.again = 0
        self._is_ordered = subscription.type != "Shared"
        self._faults = faults
        self._lock = threading.Lock()
        self._settled_below = [0] * topic.keys
        self._beyond: list[set[int]] = [set() for _ in range(topic.keys)]

    def __str__(self) -> str:
        return f"{self.topic.name} {self.subscription.name}"

    def is_accepted(self, body: Body, now_ms: float) -> bool:
        """Check a delivered message; return False if the consumer must reject it."""
        if now_ms < body.due_ms:
            self._faults.add("delivered before its time", f"{self}: {body}, {body.due_ms - now_ms:.0f} ms early")
        return not body.fails

    def acknowledge(self, body: Body) -> None:
        """Record a message that a consumer is about to acknowledge."""
        self._settle(body)

    def bury(self, body: Body) -> None:
        """Record a message found in the dead letter topic."""
        if not body.fails:
            self._faults.add("dead letter that was accepted", f"{self}: {body}")
        if self._settle(body):
            self.dead += 1

    def _settle(self, body: Body) -> bool:
        """Record a message, and return whether it is new."""
        with self._lock:
            low, beyond = self._settled_below[body.key], self._beyond[body.key]
            if body.number < low or body.number in beyond:
                self.again += 1
                return False
            if body.number > low and self._is_ordered:
                said = f"{self}: message {body.number} of key {body.key} before {low}"
                self._faults.add("order of a key broken", said)
            beyond.add(body.number)
            while low in beyond:
                beyond.discard(low)
                low += 1
            self._settled_below[body.key] = low
            return True

    def settled(self) -> int:
        """Return the number of messages that were acknowledged or are dead letters."""
        with self._lock:
            return sum(self._settled_below) + sum(map(len, self._beyond))
