"""The topics of a soak, their subscriptions and messages.

Four kinds of topics alternate: ordered, for Exclusive and Failover; with delays, for Shared, half of them with messages
that no consumer accepts; with several keys, for Key_Shared; and with a schema or non-persistent.
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
"""The official client publishes to every fifth topic, and runs every fifth consumer."""
FAILS_EVERY = 25
DELAYED_SHARE = 0.2
DELAY_MS_MAX = 5000
TEXT_BYTES_MAX = 400
DEAD_LETTER_SUFFIX = "-DLQ"


@dataclass(frozen=True)
class Subscription:
    """A subscription and its number of consumers.

    Attributes:
        type: subscription type, which determines its name.
        consumers: number of its consumers.
    """

    type: SubscriptionType
    consumers: int

    @property
    def name(self) -> str:
        """Return the subscription name."""
        return self.type.lower()


@dataclass(frozen=True)
class Topic:
    """A topic.

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
        """Return the full topic name."""
        return f"{'persistent' if self.is_persistent else 'non-persistent'}://{NAMESPACE}/{PREFIX}-{self.number}"

    @property
    def is_official(self) -> bool:
        """Whether the official client publishes to the topic."""
        return self.number % OFFICIAL_EVERY == 1 and not self.has_schema and self.is_persistent

    def dead_letters_of(self, subscription: Subscription) -> str:
        """Return the dead letter topic of a subscription."""
        return f"{self.name}-{subscription.name}{DEAD_LETTER_SUFFIX}"


def topics(count: int = TOPICS) -> list[Topic]:
    """Return topics; the subscriptions of every four topics have eight consumers."""
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
        key: number of the message's key.
        number: number among the messages with this key.
        due_ms: earliest delivery time, in milliseconds since 1970; 0 for immediate delivery.
        fails: whether no consumer accepts it.
        text: padding.
    """

    key: int
    number: int
    due_ms: int = 0
    fails: bool = False
    text: str = ""

    def encode(self) -> bytes:
        """Return the message's payload."""
        return json.dumps(asdict(self)).encode()


def body_of(payload: bytes) -> Body:
    """Parse a payload; raises ValueError or TypeError if it was not sent by this test."""
    return Body(**json.loads(payload))


class Source:
    """The messages of one topic.

    Attributes:
        topic: the topic.
        published: number of messages by key.
        failing: number of messages that no consumer accepts.
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
