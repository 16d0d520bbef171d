"""Follows one topic for a stream: its newest entry, and the stream's progress, for the broker to see.

Design: one consumer that never receives a message. It requests the newest entry, which is one cheap request, and
acknowledges what Spark has committed. With a subscription that outlives the query (`predefinedSubscription`) brokers
retain everything after it, so the topic needs no retention. Spark's checkpoint alone determines where a stream
continues; a subscription at another position is moved there.
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
"""How long a lost connection may hold the subscription: longer than brokers keep a silent one."""
_BUSY_PAUSE_S = 0.5


class Subscription(NamedTuple):
    """Name and kind of the subscription.

    Attributes:
        name: subscription name, or its prefix.
        is_durable: whether it outlives the query; otherwise it has a new name each time, and ends with the connection.
    """

    name: str
    is_durable: bool


class TopicWatch:
    """One topic, as long as one connection lasts.

    Attributes:
        topic: full name.
    """

    def __init__(self, routes: Routes, topic: str, subscription: Subscription, place: Place):
        """Subscribe; an existing subscription keeps its position.

        Args:
            routes: to the topic's broker.
            topic: full name.
            subscription: name and kind of the subscription.
            place: where a subscription begins that ends with the query.

        Raises:
            TopicNotFound: the topic does not exist.
            ConsumerBusy: another consumer uses the subscription.
            BrokerError, ConnectionLost, OperationTimeout: it is not available now.
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
        """Move a subscription that outlives the query to the stream's place, once; raises as `last_message`."""
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
        """Assume that no entries after the stream's place were missing when the subscription moved there."""
        self._has_held = self._subscription.is_durable and self._is_placed

    def last_message(self) -> LastMessage:
        """Return the newest entry.

        Raises:
            BrokerError, ConnectionLost, OperationTimeout: create a new watch.
        """
        self._connection.forget_frames()
        return self._consumer.last_message()

    @property
    def has_held(self) -> bool:
        """Whether the broker has retained everything after the stream's place."""
        return self._has_held

    def acknowledge(self, place: Place) -> None:
        """Report that everything before a place has been read; raises as `last_message`.

        Brokers do not answer for a consumer that they have closed, so no answer is awaited. The next request for the
        newest entry reveals a close; its caller creates a new watch, which moves the subscription to where it should
        be.
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
    """Return whether a subscription with this mark-delete position has retained everything after a place."""
    if mark is None or mark.ledger_id < 0:
        return False
    # Apache Pulsar moves a subscription at the end of a ledger to the beginning of the next one.
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
                text = f"{error}; another query has it, or another consumer: give each its own predefinedSubscription"
                raise ConsumerBusy(text) from error
            time.sleep(_BUSY_PAUSE_S)
