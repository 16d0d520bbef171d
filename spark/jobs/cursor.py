"""The durable subscription of a function: where it stands, and moving it behind what is done.

A consumer is attached for these questions alone and is never sent a message. It is exclusive, so nobody else consumes
under the subscription's name meanwhile; a cumulative acknowledgement would be refused to a shared one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

from ...errors import (
    BrokerError,
    ConnectionLost,
    ConsumerBusy,
    InvalidConfig,
    OperationTimeout,
    TopicNotFound,
    broker_error,
)
from ...wire import requests
from ...wire.message_id import signed_64
from ...wire.position import Position
from ...wire.pulsar_api_pb2 import BaseCommand, CommandAck, CommandSubscribe, MessageIdData
from ..source.connection import BrokerLink, Routes
from .retries import PATIENCE_S, PAUSE_S

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

    def stand(self, *, is_known: bool = False) -> Position:
        """Return the last entry that is done, making subscription and topic where they are missing.

        Args:
            is_known: it is known elsewhere how far the topic was read: a subscription that is missing was deleted, or
                has expired. It is made anew before all entries, so that none is left out.

        Raises:
            MagnetarError: the broker does not tell, or not within `PATIENCE_S`.
        """
        return self._patiently(self._stand, self._from_earliest or is_known, makes_topic=True)

    def move(self, end: Position, check: Callable[[], None]) -> bool:
        """Acknowledge all entries up to and including ``end``; does nothing where that is done already.

        Args:
            end: last entry that is done.
            check: raises where somebody else has taken over; called before anything is changed, and again with the
                consumer attached: nobody moves a subscription back that somebody holds.

        Returns: whether the topic exists; it is not made anew.

        Raises: as `stand`, and what ``check`` raises.
        """

        def move(link: BrokerLink) -> None:
            if self._stand(link) >= end:
                return
            check()
            answer = link.request(
                f"acknowledging {end} of {self.topic}",
                lambda request_id: BaseCommand(
                    type=BaseCommand.ACK,
                    ack=CommandAck(
                        consumer_id=_CONSUMER_ID,
                        ack_type=CommandAck.Cumulative,
                        message_id=[MessageIdData(ledgerId=end.ledger_id, entryId=end.entry_id)],
                        request_id=request_id,
                    ),
                ),
            )
            if answer.HasField("error"):
                raise broker_error(answer.error, answer.message)

        try:
            self._patiently(move, True, makes_topic=False, check=check)
        except TopicNotFound:
            return False
        return True

    def _stand(self, link: BrokerLink) -> Position:
        answer = link.request(
            f"last message of {self.topic}", lambda request_id: requests.last_message_id(request_id, _CONSUMER_ID)
        )
        if answer.HasField("consumer_mark_delete_position"):
            data = answer.consumer_mark_delete_position
            return Position(signed_64(data.ledgerId), signed_64(data.entryId))
        raise InvalidConfig(
            f"{link.address.physical} does not tell where subscription {self._name} stands on {self.topic}; the bundled"
            " broker does, and so does Apache Pulsar from 2.8 on"
        )

    def _attach(self, link: BrokerLink, from_earliest: bool, makes_topic: bool) -> None:
        start = CommandSubscribe.Earliest if from_earliest else CommandSubscribe.Latest
        link.request(
            f"subscription {self._name} of {self.topic}",
            lambda request_id: requests.subscribe(
                CommandSubscribe(
                    topic=self.topic,
                    subscription=self._name,
                    subType=CommandSubscribe.Exclusive,
                    consumer_id=_CONSUMER_ID,
                    request_id=request_id,
                    durable=True,
                    initialPosition=start,
                    force_topic_creation=makes_topic,
                )
            ),
        )

    def _patiently(
        self,
        work: Callable[[BrokerLink], _T],
        from_earliest: bool,
        *,
        makes_topic: bool,
        check: Callable[[], None] | None = None,
    ) -> _T:
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            if check is not None:
                check()
            try:
                with contextlib.closing(self._routes.link_to(self.topic)) as link:
                    self._attach(link, from_earliest, makes_topic)
                    result = work(link)
                    link.request(
                        "end of a question", lambda request_id: requests.close_consumer(request_id, _CONSUMER_ID)
                    )
                    return result
            except (ConnectionLost, OperationTimeout, BrokerError) as error:
                is_over = time.monotonic() > deadline_s
                if isinstance(error, ConsumerBusy) and is_over:
                    raise ConsumerBusy(
                        f"subscription {self._name} of {self.topic} is in use by another consumer; stop it"
                    ) from error
                if is_over or (getattr(error, "is_final", False) and not isinstance(error, ConsumerBusy)):
                    raise
                time.sleep(PAUSE_S)
