"""Start of a reader or seek, and which messages of its first entry are wanted.

The broker begins with the whole entry of the start message; whatever of it is not wanted is left out here.
"""

from __future__ import annotations

from typing import NamedTuple

from ...wire.message_id import MessageId, to_data
from ...wire.pulsar_api_pb2 import MessageIdData
from .ack_tracker import EntryKey, words_of


class StartPosition(NamedTuple):
    """A message, and whether reading begins with it or after it."""

    message_id: MessageId
    inclusive: bool

    def new_messages(self, position: EntryKey, batch_size: int | None) -> int | None:
        """Return the messages of an entry that are to be read, as bits; None if this is another entry.

        Args:
            position: of the entry.
            batch_size: None if the entry is no batch.
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
        """Return the entry for SEEK, with an ack set of the messages of it that are wanted, empty for all.

        The message itself counts as wanted even where it is not: a set of none would mean all.
        """
        ledger_id, entry_id, _, index, size = self.message_id
        data = to_data(MessageId(ledger_id, entry_id))
        if 0 < index < size:
            data.ack_set.extend(words_of(((1 << size) - 1) & ~((1 << index) - 1)))
        return data
