"""The blocking client's consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ...errors import ClosedError, InvalidConfig, OperationTimeout
from ...wire.message_id import MessageId
from ..client import AsyncClient
from ..consumers.consumer import Consumer as AsyncConsumer
from ..consumers.merged import MergedConsumer
from ..consumers.received import Message
from ..listener_threads import Lane, deliver_on
from ..statistics import ConsumerStatistics
from ..typed.consumer import TypedConsumer
from .part import Part


class Consumer(Part[AsyncConsumer | MergedConsumer | TypedConsumer[Any]]):
    """Receives messages; created by `Client.subscribe`."""

    @property
    def subscription_name(self) -> str:
        """Subscription name."""
        return self._inner.subscription

    @property
    def is_active(self) -> bool:
        """Whether the broker currently delivers to this consumer."""
        return self._inner.is_active

    def __iter__(self) -> Iterator[Message]:
        """Receive messages until the consumer is closed."""
        while True:
            try:
                yield self.receive()
            except ClosedError:
                return

    def listen(self, client: AsyncClient, lane: Lane, listener: Callable[[Consumer, Message], object]) -> None:
        """Pass all messages to a listener (called by the client)."""
        inner = self._inner
        deliver = deliver_on(lane, partial(listener, self), lambda: inner.is_closed or inner.is_listener_paused)
        self._thread.run(lambda: client.listen(inner, deliver))

    def pause_message_listener(self) -> None:
        """Stop calling the listener until `resume_message_listener`; a call in progress is not interrupted.

        Raises:
            InvalidConfig: the consumer has no listener.
        """
        self._thread.run(self._inner.pause_message_listener)

    def resume_message_listener(self) -> None:
        """Call the listener again after `pause_message_listener`.

        Raises:
            InvalidConfig: the consumer has no listener.
        """
        self._thread.run(self._inner.resume_message_listener)

    def statistics(self) -> ConsumerStatistics | dict[str, ConsumerStatistics]:
        """Return the consumer's statistics, separately for each topic or partition if there are several.

        Raises:
            InvalidConfig: the client does not collect statistics.
        """
        return self._inner.statistics()

    def receive(self, timeout_millis: int | None = None) -> Message:
        """Return the next message.

        Raises:
            OperationTimeout: no message arrived within ``timeout_millis``; a later call returns it.
            InvalidConfig: the consumer has a listener, or ``timeout_millis`` is negative or not a number.
            MagnetarError: see the asyncio `Consumer.receive`.
        """
        if self._inner.has_listener:
            raise InvalidConfig(f"receive cannot be used on a consumer with a message_listener (topic {self.topic})")
        return self._thread.call(self._inner.receive(timeout_millis=timeout_millis))

    def batch_receive(self, max_messages: int = 1000, timeout_millis: int | None = None) -> list[Message]:
        """Return up to ``max_messages`` available messages, waiting only for the first.

        Returns: an empty list if no message arrived within ``timeout_millis``.

        Raises:
            InvalidConfig: see `receive`.
        """
        if self._inner.has_listener:
            raise InvalidConfig(f"receive cannot be used on a consumer with a message_listener (topic {self.topic})")
        return self._thread.call(self._batch(max_messages, timeout_millis))

    async def _batch(self, max_messages: int, timeout_millis: int | None) -> list[Message]:
        try:
            messages = [await self._inner.receive(timeout_millis=timeout_millis)]
        except OperationTimeout:
            return []
        while len(messages) < max_messages and (message := self._inner.poll()) is not None:
            messages.append(message)
        return messages

    def acknowledge(self, message: Message | MessageId) -> None:
        """Acknowledge a message; waits for the broker if ``ack_receipts`` is on."""
        self._thread.wait(lambda: self._inner.ack(message))

    def acknowledge_all(self, messages: Sequence[Message]) -> None:
        """Acknowledge several messages in one batch; waits for the broker if ``ack_receipts`` is on."""
        self._thread.call(self._ack_all(messages))

    async def _ack_all(self, messages: Sequence[Message]) -> None:
        await asyncio.gather(*map(self._inner.ack, messages))

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge everything up to a message; waits for the broker if ``ack_receipts`` is on."""
        self._thread.wait(lambda: self._inner.ack_cumulative(message))

    def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Request redelivery of a message after ``negative_ack_delay_ms``."""
        self._thread.run(lambda: self._inner.negative_ack(message))

    def reconsume_later(
        self, message: Message, delay_millis: int = 0, properties: Mapping[str, str] | None = None
    ) -> None:
        """Send a message to the retry letter topic, from which it is redelivered, and acknowledge it.

        After ``max_redeliver_count`` redeliveries, the message is sent to the dead letter topic instead.

        Raises:
            InvalidConfig: ``retry_enable`` is not set.
            MagnetarError: the message was not stored, and is not acknowledged.
        """
        self._thread.call(self._inner.reconsume_later(message, delay_millis, properties))

    def redeliver_unacknowledged_messages(self) -> None:
        """Request redelivery of all unacknowledged messages."""
        self._thread.run(self._inner.redeliver_unacknowledged)

    def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Move the subscription: the next message will be the first one after ``target``.

        Args:
            target: a message id, EARLIEST, LATEST, or a publish time in milliseconds: the first
                message published at or after it is next.
            inclusive: with a message id, start at that message instead of after it.

        Raises:
            BrokerError, OperationTimeout, ConnectionLost: the subscription may not have moved.
        """
        self._thread.call(self._inner.seek(target, inclusive=inclusive))

    def get_last_message_id(self) -> MessageId:
        """Return the id of the newest message, for a consumer of a single topic."""
        return self._thread.call(self._inner.last_message_id())

    def unsubscribe(self) -> None:
        """Delete the subscription and close the consumer."""
        self._thread.call(self._inner.unsubscribe())
