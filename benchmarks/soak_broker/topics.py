"""The topics of a soak, their subscriptions, and what is published to them.

Four kinds of topics follow each other: one in order, for Exclusive and Failover; one with delays, for Shared, and every
second of these has messages that no consumer accepts; one of several keys, for Key_Shared; and one that has a schema or
is not persistent.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from magnetar.client.config import SubscriptionType

TOPICS = 200
NAMESPACE = "public/default"
PREFIX = "soak"
KEYS = 8
OFFICIAL_EVERY = 5
"""Every fifth topic is published to, and every fifth consumer is, by the official client."""
FAILS_EVERY = 25
DELAYED_SHARE = 0.2
DELAY_MS_MAX = 5000
TEXT_BYTES_MAX = 400
DEAD_LETTER_SUFFIX = "-DLQ"


@dataclass(frozen=True)
class Subscription:
    """A subscription and how many consumers it has.

    Attributes:
        type: which decides its name.
        consumers: that take turns in coming and going.
    """

    type: SubscriptionType
    consumers: int

    @property
    def name(self) -> str:
        """Of the subscription."""
        return self.type.lower()


@dataclass(frozen=True)
class Topic:
    """One topic.

    Attributes:
        number: number of the topic, from 0.
        subscriptions: subscriptions that exist before anything is published.
        keys: keys of its messages; messages with the same key are ordered.
        is_delaying: whether some messages are delayed.
        is_failing: whether some messages are rejected by all consumers.
        has_schema: whether its messages have a schema.
        is_persistent: whether the topic is persistent.
    """

    number: int
    subscriptions: Sequence[Subscription]
    keys: int = 1
    is_delaying: bool = False
    is_failing: bool = False
    has_schema: bool = False
    is_persistent: bool = True

    @property
    def name(self) -> str:
        """The full name."""
        return f"{'persistent' if self.is_persistent else 'non-persistent'}://{NAMESPACE}/{PREFIX}-{self.number}"

    @property
    def is_official(self) -> bool:
        """Whether the official client publishes to it."""
        return self.number % OFFICIAL_EVERY == 1 and not self.has_schema and self.is_persistent

    def dead_letters_of(self, subscription: Subscription) -> str:
        """The topic of what no consumer of a subscription accepts."""
        return f"{self.name}-{subscription.name}{DEAD_LETTER_SUFFIX}"


def topics(count: int = TOPICS) -> list[Topic]:
    """Return so many topics; of each four, the subscriptions have eight consumers."""
    found = []
    for number in range(count):
        match number % 4:
            case 0:
                topic = Topic(number, (Subscription("Exclusive", 1), Subscription("Failover", 2)))
            case 1:
                topic = Topic(number, (Subscription("Shared", 2),), KEYS, is_delaying=True, is_failing=number % 8 == 1)
            case 2:
                topic = Topic(number, (Subscription("Key_Shared", 2),), KEYS)
            case _:
                has_schema = number % 8 == 3
                topic = Topic(number, (Subscription("Exclusive", 1),), has_schema=has_schema, is_persistent=has_schema)
        found.append(topic)
    return found


@dataclass(frozen=True)
class Body:
    """A message as JSON.

    Attributes:
        key: of the topic's keys, which one.
        number: of this key's messages, which one.
        due_ms: not to be delivered before, in milliseconds since 1970; 0 for at once.
        fails: whether no consumer accepts it.
        text: to have a size.
    """

    key: int
    number: int
    due_ms: int = 0
    fails: bool = False
    text: str = ""

    def encode(self) -> bytes:
        """The message's payload."""
        return json.dumps(asdict(self)).encode()


def body_of(payload: bytes) -> Body:
    """Parse a payload; raises ValueError or TypeError if it was not sent by this test."""
    return Body(**json.loads(payload))


class Source:
    """What is published to one topic.

    Attributes:
        topic: which.
        published: how many messages of each key.
        failing: how many of them no consumer accepts.
    """

    def __init__(self, topic: Topic, rng: random.Random) -> None:
        self.topic = topic
        self.published = [0] * topic.keys
        self.failing = 0
        self._rng = rng

    def next(self, now_ms: int) -> Body:
        """Return the next message."""
        key = self._rng.randrange(self.topic.keys)
        number = self.published[key]
        self.published[key] += 1
        due_ms, fails = 0, False
        if self.topic.is_failing:
            fails = self._rng.randrange(FAILS_EVERY) == 0
            self.failing += fails
        if self.topic.is_delaying and self._rng.random() < DELAYED_SHARE:
            due_ms = now_ms + self._rng.randrange(1, DELAY_MS_MAX)
        return Body(key, number, due_ms, fails, "x" * self._rng.randrange(TEXT_BYTES_MAX))
