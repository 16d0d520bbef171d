"""The message id that a function sees: questions are methods, as on the official client's class."""

from __future__ import annotations

from typing import NamedTuple


class FunctionMessageId(NamedTuple):
    """Names one message: what `Context.get_message_id` returns and `Context.ack` takes."""

    ledger: int
    entry: int
    partition_index: int
    index_in_batch: int
    serialized: bytes

    def ledger_id(self) -> int:
        """Return the ledger."""
        return self.ledger

    def entry_id(self) -> int:
        """Return the entry inside the ledger."""
        return self.entry

    def partition(self) -> int:
        """Return the partition, -1 if the topic has none."""
        return self.partition_index

    def batch_index(self) -> int:
        """Return the place inside the batch, -1 if the message came alone."""
        return self.index_in_batch

    def serialize(self) -> bytes:
        """Return bytes that every Pulsar client can read."""
        return self.serialized

    def __str__(self) -> str:
        return f"({self.ledger},{self.entry},{self.partition_index},{self.index_in_batch})"
