"""Interceptors of producers and consumers, as in Java's client.

Design: the base classes' hooks do nothing, so an interceptor overrides only those it needs. Interceptors are called in
the order of their list, on the client's event loop, and must not block. Exceptions are logged, and the message is
passed on unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import MagnetarError
from ..wire.message_id import MessageId
from .outgoing_message import OutgoingMessage


class ProducerInterceptor:
    """Intercepts each message of a producer before it is sent, and its result.

    ``producer`` is the application's producer, which covers all partitions of a partitioned topic. A producer with
    interceptors rejects encoded entries, because interceptors require messages.
    """

    def before_send(self, producer: Any, message: OutgoingMessage) -> OutgoingMessage:
        """Return the message to send, which may be a modified or different one."""
        return message

    def on_send_acknowledgement(
        self, producer: Any, message: OutgoingMessage, message_id: MessageId | None, error: MagnetarError | None
    ) -> None:
        """Handle the result: the message was stored as ``message_id``, or failed with an error."""

    def close(self) -> None:
        """Called when the producer is closed."""


class ConsumerInterceptor:
    """Intercepts each `Message` of a consumer before the application receives it, and its acknowledgement.

    ``consumer`` is the consumer for the topic or partition.
    """

    def before_consume(self, consumer: Any, message: Any) -> Any:
        """Return the message for the application, which may be a modified or different one."""
        return message

    def on_acknowledge(self, consumer: Any, message_id: MessageId, error: MagnetarError | None) -> None:
        """Handle the acknowledgement of a message (with ``ack_receipts``, after the broker's receipt), or its error."""

    def on_acknowledge_cumulative(self, consumer: Any, message_id: MessageId, error: MagnetarError | None) -> None:
        """Handle a cumulative acknowledgement up to a message; see `on_acknowledge`."""

    def on_negative_acks_send(self, consumer: Any, message_ids: Sequence[MessageId]) -> None:
        """Handle the redelivery request for negatively acknowledged entries."""

    def on_ack_timeout_send(self, consumer: Any, message_ids: Sequence[MessageId]) -> None:
        """Handle the redelivery request for entries that were not acknowledged in time."""

    def close(self) -> None:
        """Called when the consumer is closed."""
