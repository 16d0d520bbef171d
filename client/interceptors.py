"""Hooks that an application may put between itself and a producer or consumer, as in Java's client.

Design: every hook does nothing here, so an interceptor has those that it needs. Hooks run in the order of their list,
on the client's event loop: they must not block. What one raises is logged, and the message goes on as it was before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import MagnetarError
from ..wire.message_id import MessageId
from .outgoing_message import OutgoingMessage


class ProducerInterceptor:
    """Sees each message of a producer before it is sent, and what became of it.

    ``producer`` is what the application has: of a partitioned topic, that of all partitions. A producer with
    interceptors refuses encoded entries, as they see messages.
    """

    def before_send(self, producer: Any, message: OutgoingMessage) -> OutgoingMessage:
        """Return the message to send: the one given, or another."""
        return message

    def on_send_acknowledgement(
        self, producer: Any, message: OutgoingMessage, message_id: MessageId | None, error: MagnetarError | None
    ) -> None:
        """Learn that a message was stored as ``message_id``, or why not."""

    def close(self) -> None:
        """Learn that the producer was closed."""


class ConsumerInterceptor:
    """Sees each message (`Message`) of a consumer before the application, and what the application does with it.

    ``consumer`` is the one of the topic or partition.
    """

    def before_consume(self, consumer: Any, message: Any) -> Any:
        """Return the message that the application gets: the one given, or another."""
        return message

    def on_acknowledge(self, consumer: Any, message_id: MessageId, error: MagnetarError | None) -> None:
        """Learn that a message is acknowledged (with ``ack_receipts``: that the broker says so), or why not."""

    def on_acknowledge_cumulative(self, consumer: Any, message_id: MessageId, error: MagnetarError | None) -> None:
        """Learn that everything up to a message is acknowledged; as `on_acknowledge`."""

    def on_negative_acks_send(self, consumer: Any, message_ids: Sequence[MessageId]) -> None:
        """Learn which entries are asked for again, because they were refused."""

    def on_ack_timeout_send(self, consumer: Any, message_ids: Sequence[MessageId]) -> None:
        """Learn which entries are asked for again, because they were not acknowledged in time."""

    def close(self) -> None:
        """Learn that the consumer was closed."""
