"""The message id in the function API: fields are methods, as in the official client."""

from __future__ import annotations

from typing import NamedTuple


class FunctionMessageId(NamedTuple):
    """Identifies one message: the result of `Context.get_message_id` and argument of `Context.ack`."""

    ledger: int
    entry: int
    partition_index: int
    index_in_batch: int
    serialized: bytes

    def ledger_id(self) -> int:
        """Return the ledger id."""
        return self.ledger

    def entry_id(self) -> int:
        """Return the entry id within the ledger."""
        return self.entry

    def partition(self) -> int:
        """Return the partition, -1 if the topic is not partitioned."""
        return self.partition_index

    def batch_index(self) -> int:
        """Return the index in the batch, -1 if the message was not batched."""
        return self.index_in_batch

    def serialize(self) -> bytes:
        """Return the id in the serialised form of Pulsar clients."""
        return self.serialized

    def __str__(self) -> str:
        return f"({self.ledger},{self.entry},{self.partition_index},{self.index_in_batch})"
