"""The blocking client's reader."""

from __future__ import annotations

from typing import Any

from ...wire.message_id import MessageId
from ..consumers.reader import Reader as AsyncReader
from ..consumers.received import Message
from ..typed.consumer import TypedReader
from .part import Part


class Reader(Part[AsyncReader | TypedReader[Any]]):
    """Reads a topic from a chosen position; created by `Client.create_reader`."""

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """Return the next message.

        Raises:
            OperationTimeout: no message arrived within ``timeout_millis``; a later call returns it.
            MagnetarError: see the asyncio `Consumer.receive`.
        """
        return self._thread.call(self._inner.read_next(timeout_millis=timeout_millis))

    def has_message_available(self) -> bool:
        """Return whether the topic has a message that the reader has not read yet."""
        return self._thread.call(self._inner.has_message_available())

    def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Move the reader: the next message will be the first one after ``target``.

        Args:
            target: a message id, EARLIEST, LATEST, or a publish time in milliseconds: the first
                message published at or after it is next.
            inclusive: with a message id, start at that message instead of after it.

        Raises:
            BrokerError, OperationTimeout, ConnectionLost: the position may not have changed.
        """
        self._thread.call(self._inner.seek(target, inclusive=inclusive))
