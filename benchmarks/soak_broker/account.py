"""What one subscription has settled of what was published: acknowledged, or found among its dead letters.

Of each key it keeps, as a cursor does, the number up to which all is settled and what is settled beyond it. So it takes
no more memory the longer it counts, and a message that comes again is known as that. Where messages have an order
nothing can be beyond: one that is acknowledged before its predecessor broke the order of its key.

Callers are on several threads: the official client's listeners have one of their own.
"""

from __future__ import annotations

import threading

from .topics import Body, Subscription, Topic

EXAMPLES = 3


class Faults:
    """What should not happen: each kind is counted, and shown by its first occurrences."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._examples: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    def add(self, kind: str, example: str) -> None:
        """Note one."""
        with self._lock:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            shown = self._examples.setdefault(kind, [])
            if len(shown) < EXAMPLES:
                shown.append(example)

    def lines(self) -> list[tuple[str, str]]:
        """Kinds, and what is said of each."""
        return [(kind, f"{count:,} times: {'; '.join(self._examples[kind])}") for kind, count in self.counts.items()]


class Account:
    """The account of one subscription.

    Attributes:
        topic: which.
        subscription: which.
        dead: messages in the dead letter topic, each once.
        again: messages that came after they were settled.
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
        """Look at a message that was delivered; False if the consumer is to refuse it."""
        if now_ms < body.due_ms:
            self._faults.add("delivered before its time", f"{self}: {body}, {body.due_ms - now_ms:.0f} ms early")
        return not body.fails

    def acknowledge(self, body: Body) -> None:
        """Settle a message that a consumer is about to acknowledge."""
        self._settle(body)

    def bury(self, body: Body) -> None:
        """Settle a message that is in the dead letter topic."""
        if not body.fails:
            self._faults.add("dead letter that was accepted", f"{self}: {body}")
        if self._settle(body):
            self.dead += 1

    def _settle(self, body: Body) -> bool:
        """Note a message; returns whether it is new."""
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
        """How many messages were acknowledged or are dead letters."""
        with self._lock:
            return sum(self._settled_below) + sum(map(len, self._beyond))
