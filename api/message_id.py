"""The message ID in the function API, with fields as methods, as in the official client."""

from __future__ import annotations

from typing import NamedTuple


class FunctionMessageId(NamedTuple):
    """Identifies one message. Returned by `Context.get_message_id`, and accepted by `Context.ack`."""

    ledger: int
    entry: int
    partition_index: int
    index_in_batch: int
    serialized: bytes

    def ledger_id(self) -> int:
        """Return the ledger ID."""
        return self.ledger

    def entry_id(self) -> int:
        """Return the entry ID within the ledger."""
        return self.entry

    def partition(self) -> int:
        """Return the partition, or -1 if the topic is not partitioned."""
        return self.partition_index

    def batch_index(self) -> int:
        """Return the index in the batch, or -1 if the message was not batched."""
        return self.index_in_batch

    def serialize(self) -> bytes:
        """Return the ID in the serialised format of Pulsar clients."""
        return self.serialized

    def __str__(self) -> str:
        return f"({self.ledger},{self.entry},{self.partition_index},{self.index_in_batch})"
