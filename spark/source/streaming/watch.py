"""Watches the newest entry of a stream's topic, and reports the stream's progress to the broker.

Design: a consumer, which never receives messages, requests the newest entry, which is cheap, and acknowledges what
Spark has committed. With a durable subscription (`predefinedSubscription`), brokers retain everything after its
position, so the topic does not need retention. Only Spark's checkpoint determines where a stream continues; a
subscription at another position is moved there.
"""

from __future__ import annotations

import secrets
import time
from typing import NamedTuple

from ....errors import ConsumerBusy
from ....wire import pulsar_api_pb2 as pb
from ....wire.message_id import EARLIEST, MessageId, to_data
from ....wire.position import Position
from ..connection import BlockingConnection, Routes
from ..reader import BlockingConsumer, LastMessage
from .places import BEGINNING, Place

BUSY_TIMEOUT_S = 60.0
"""Time during which a lost connection may occupy the subscription; longer than brokers keep idle connections."""
_BUSY_PAUSE_S = 0.5


class Subscription(NamedTuple):
    """Name and kind of a subscription.

    Attributes:
        name: subscription name, or the prefix of a generated name.
        is_durable: whether the subscription outlives the query; otherwise its name is generated and it ends with the
            connection.
    """

    name: str
    is_durable: bool


class TopicWatch:
    """Watch of one topic that uses a single connection.

    Attributes:
        topic: full topic name.
    """

    def __init__(self, routes: Routes, topic: str, subscription: Subscription, place: Place):
        """Subscribe; an existing subscription keeps its position.

        Args:
            routes: connects to the topic's broker.
            topic: full topic name.
            subscription: name and kind of the subscription.
            place: start of a non-durable subscription.

        Raises:
            TopicNotFound: the topic does not exist.
            ConsumerBusy: another consumer uses the subscription.
            BrokerError, ConnectionLost, OperationTimeout: the topic is currently unavailable.
        """
        self.topic = topic
        self._subscription = subscription
        self._acknowledged = place if not subscription.is_durable else BEGINNING
        self._has_held = False
        self._is_placed = not subscription.is_durable
        self._connection = routes.connect_to(topic)
        try:
            self._consumer = _subscribed(self._connection, topic, subscription, place)
        except BaseException:
            self.close()
            raise

    def stand_at(self, place: Place) -> None:
        """Move a durable subscription to the stream's place, once; raises the same errors as `last_message`."""
        if self._is_placed:
            return
        self._connection.forget_frames()
        mark = self._consumer.last_message().mark_delete
        self._has_held = place != BEGINNING and _stands_at(mark, place)
        if not self._has_held:
            self._consumer.seek_to_id(EARLIEST if place == BEGINNING else MessageId(*place.position))
            self._acknowledged = place
        self._is_placed = True
        self.acknowledge(place)

    def trust(self) -> None:
        """Assume that no entries after the stream's place were missing when the subscription was moved there."""
        self._has_held = self._subscription.is_durable and self._is_placed

    def last_message(self) -> LastMessage:
        """Return the newest entry.

        Raises:
            BrokerError, ConnectionLost, OperationTimeout: the watch is unusable and must be replaced.
        """
        self._connection.forget_frames()
        return self._consumer.last_message()

    @property
    def has_held(self) -> bool:
        """Whether the broker has retained everything after the stream's place."""
        return self._has_held

    def acknowledge(self, place: Place) -> None:
        """Acknowledge all messages before a place; raises the same errors as `last_message`.

        Brokers do not respond for a consumer that they have closed, so this method does not wait for a response. The
        next request for the newest entry fails if the consumer was closed; its caller then creates a new watch, which
        moves the subscription to the correct place.
        """
        if place == self._acknowledged or not self._is_placed or place == BEGINNING or place.entry_id == 0:
            return
        self._consumer.acknowledge(place.before)
        self._acknowledged = place
        self._has_held = self._subscription.is_durable

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _stands_at(mark: Position | None, place: Place) -> bool:
    """Return whether a subscription with a mark-delete position has retained everything after a place."""
    if mark is None or mark.ledger_id < 0:
        return False
    # Apache Pulsar moves a subscription at the end of a ledger to the start of the next ledger.
    return mark <= place.before or (mark.entry_id == -1 and mark.ledger_id > place.ledger_id)


def _subscribed(
    connection: BlockingConnection, topic: str, subscription: Subscription, place: Place
) -> BlockingConsumer:
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        name = subscription.name if subscription.is_durable else f"{subscription.name}-{secrets.token_hex(8)}"
        command = pb.CommandSubscribe(
            topic=topic,
            subscription=name,
            consumer_name=name,
            durable=subscription.is_durable,
            # A new subscription starts at the end, so that it is not mistaken for one that has retained earlier
            # entries.
            initialPosition=pb.CommandSubscribe.Latest,
            force_topic_creation=False,
        )
        if not subscription.is_durable:
            start = EARLIEST if place == BEGINNING else MessageId(*place.position)
            command.start_message_id.CopyFrom(to_data(start))
        try:
            return BlockingConsumer(connection, f"subscription {name} of {topic}", command)
        except ConsumerBusy as error:
            if time.monotonic() > deadline:
                text = (
                    f"{error}; another query or consumer uses it: set a separate predefinedSubscription for each query"
                )
                raise ConsumerBusy(text) from error
            time.sleep(_BUSY_PAUSE_S)
