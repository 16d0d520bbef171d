"""Start position of a consumer, its resume position after a reconnection, and which received messages are new.

The broker starts with the whole entry of the start message; unwanted messages of that entry are dropped here.
"""

from __future__ import annotations

from typing import NamedTuple

from ...wire.message_id import EARLIEST, LATEST, MessageId, to_data
from ...wire.pulsar_api_pb2 import MessageIdData
from .ack_tracker import bits_of, words_of
from .acknowledger import Acknowledger
from .received import EntryKey, ReceivedEntry


class StartPosition(NamedTuple):
    """Start position of a reader or seek: a message, and whether to start at it or after it."""

    message_id: MessageId
    inclusive: bool

    def new_messages(self, position: EntryKey, batch_size: int | None) -> int | None:
        """Return a bit set of the messages to read from the start entry, or None for any other entry.

        Args:
            position: the entry's position.
            batch_size: None if the entry is not a batch.
        """
        if position != self.message_id[:2]:
            return None
        everything = (1 << (batch_size or 1)) - 1
        index = self.message_id.batch_index
        if batch_size is None or index < 0:
            return everything if self.inclusive else 0
        seen = index if self.inclusive else index + 1
        return everything & ~((1 << seen) - 1)

    def entry_data(self) -> MessageIdData:
        """Return the entry for SEEK with an ack set of its wanted messages, which is empty for all.

        The start message always counts as wanted, as an empty set would mean all.
        """
        ledger_id, entry_id, _, index, size = self.message_id
        data = to_data(MessageId(ledger_id, entry_id))
        if 0 < index < size:
            data.ack_set.extend(words_of(((1 << size) - 1) & ~((1 << index) - 1)))
        return data


class Resumption:
    """The resume position of a consumer.

    Attributes:
        start: resume position of a non-durable subscription, whose position the broker discards with the connection;
            None for durable ones.
        skip: already received part of the first entry, which the broker always sends whole; None after that entry.
    """

    __slots__ = ("_acks", "skip", "start")

    def __init__(self, start: StartPosition | None, acks: Acknowledger):
        self.start = start
        self.skip = start
        self._acks = acks

    @property
    def is_latest(self) -> bool:
        """Whether reading starts with the next published message."""
        return self.start is not None and self.start.message_id == LATEST and not self.start.inclusive

    def stands_at(self, mark_delete: MessageId | None) -> None:
        """Apply the subscription's mark-delete position, if the broker sent it."""
        if mark_delete is not None:
            self.start = StartPosition(mark_delete, inclusive=False)

    def sought(self, target: MessageId | int, skip: StartPosition | None) -> None:
        """Resume at the target of a seek (a message or a time); ``skip`` is the unwanted part of its entry."""
        self.skip = skip
        if self.start is not None:
            self.start = skip or StartPosition(target if isinstance(target, MessageId) else EARLIEST, inclusive=True)

    def detached(self, untaken: StartPosition | None) -> None:
        """Resume with the first message that the application has not received, if one was queued."""
        if self.start is not None:
            self.start = untaken or self.start
            self.skip = self.start

    def new_messages(self, entry: ReceivedEntry, position: EntryKey) -> int | None:
        """Return the messages of an entry that are new to the application as a bit set; None means all."""
        tracker = self._acks.tracker
        if entry.ack_set:
            tracker.set_wanted(position, bits_of(entry.ack_set))
        if tracker.is_acknowledged(position):
            return 0  # its acknowledgement is pending
        wanted = tracker.wanted(position)
        if self.skip is None:
            return wanted
        new = self.skip.new_messages(position, entry.num_messages if entry.is_batch else None)
        if new is None:
            self.skip = None
            return wanted
        wanted = new if wanted is None else wanted & new
        if self.start is None:
            # The application has moved past these messages, so the subscription treats them as processed.
            self._acks.all_but(position, wanted)
        return wanted
