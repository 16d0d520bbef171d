"""The durable subscription of a function on one topic: its mark-delete position, read and moved.

A consumer is attached for these requests alone and is never sent a message. It is exclusive, so nobody else consumes
under the subscription's name meanwhile; a cumulative acknowledgement would be refused to a shared one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from ...errors import ConsumerBusy, InvalidConfig, TopicNotFound, broker_error
from ...wire import pulsar_api_pb2 as pb
from ...wire.position import Position
from ..source.connection import BlockingConnection, Routes
from ..source.reader import mark_delete_of
from .retries import with_retries

_CONSUMER_ID = 1
_T = TypeVar("_T")


class Subscription:
    """One durable subscription on one topic; connects for each call.

    Attributes:
        topic: full name, of the partition where there are some.
    """

    def __init__(self, routes: Routes, topic: str, name: str, *, from_earliest: bool) -> None:
        """Prepare.

        Args:
            routes: to the broker.
            topic: full name.
            name: of the subscription.
            from_earliest: where it begins if it does not exist yet; else behind the last message.
        """
        self.topic = topic
        self._routes = routes
        self._name = name
        self._from_earliest = from_earliest

    def position(self, *, is_known: bool = False) -> Position:
        """Return the mark-delete position, creating the subscription and the topic where they are missing.

        Args:
            is_known: it is known elsewhere how far the topic was read: a subscription that is missing was deleted, or
                has expired. It is made anew before all entries, so that none is left out.

        Raises:
            MagnetarError: the broker does not tell, or not within `retries.RETRY_DEADLINE_S`.
        """
        return self._with_retries(self._position, self._from_earliest or is_known, makes_topic=True)

    def move(self, end: Position, check: Callable[[], None]) -> bool:
        """Acknowledge all entries up to and including ``end``; does nothing where that is done already.

        Args:
            end: last entry that is done.
            check: raises where somebody else has taken over; called before anything is changed, and again with the
                consumer attached: nobody moves a subscription back that somebody holds.

        Returns: whether the topic exists; it is not made anew.

        Raises: as `position`, and what ``check`` raises.
        """

        def move(connection: BlockingConnection) -> None:
            if self._position(connection) >= end:
                return
            check()
            command = pb.CommandAck(
                consumer_id=_CONSUMER_ID,
                ack_type=pb.CommandAck.Cumulative,
                message_id=[pb.MessageIdData(ledgerId=end.ledger_id, entryId=end.entry_id)],
            )
            answer = connection.request(f"acknowledging {end} of {self.topic}", command)
            if answer.HasField("error"):
                raise broker_error(answer.error, answer.message)

        try:
            self._with_retries(move, True, makes_topic=False, check=check)
        except TopicNotFound:
            return False
        return True

    def _position(self, connection: BlockingConnection) -> Position:
        answer = connection.request(
            f"last message of {self.topic}", pb.CommandGetLastMessageId(consumer_id=_CONSUMER_ID)
        )
        if (position := mark_delete_of(answer)) is not None:
            return position
        raise InvalidConfig(
            f"{connection.address.physical} does not tell where subscription {self._name} stands on {self.topic}; the"
            " bundled broker does, and so does Apache Pulsar from 2.8 on"
        )

    def _attach(self, connection: BlockingConnection, from_earliest: bool, makes_topic: bool) -> None:
        command = pb.CommandSubscribe(
            topic=self.topic,
            subscription=self._name,
            subType=pb.CommandSubscribe.Exclusive,
            consumer_id=_CONSUMER_ID,
            durable=True,
            initialPosition=pb.CommandSubscribe.Earliest if from_earliest else pb.CommandSubscribe.Latest,
            force_topic_creation=makes_topic,
        )
        connection.request(f"subscription {self._name} of {self.topic}", command)

    def _with_retries(
        self,
        work: Callable[[BlockingConnection], _T],
        from_earliest: bool,
        *,
        makes_topic: bool,
        check: Callable[[], None] = lambda: None,
    ) -> _T:
        """Attach the consumer and do ``work``, repeatedly while the broker is away or the subscription is in use."""

        def attempt() -> _T:
            try:
                with contextlib.closing(self._routes.connect_to(self.topic)) as connection:
                    self._attach(connection, from_earliest, makes_topic)
                    result = work(connection)
                    connection.request("closing the consumer", pb.CommandCloseConsumer(consumer_id=_CONSUMER_ID))
                    return result
            except ConsumerBusy as error:
                busy = ConsumerBusy(f"subscription {self._name} of {self.topic} is in use by another consumer; stop it")
                busy.is_final = False  # it may be of a driver that is gone, whose connection the broker gives up soon
                raise busy from error

        return with_retries(attempt, check)
