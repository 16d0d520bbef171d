"""Confirmed records of a batch, for sinks whose target confirms records individually.

A batch with unconfirmed records is rewritten when a record was rejected or the target was unavailable. This class
tracks which records are already written and need not be sent again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..api.connector import Record


class Confirmed:
    """Records of the current batch that the target has confirmed. Kept when the connector is reopened."""

    def __init__(self) -> None:
        """Create an empty set of confirmed records."""
        self._places: set[tuple[str, str]] = set()

    def missing(self, records: Sequence[Record]) -> Iterator[tuple[int, Record]]:
        """Yield the unconfirmed records of a batch with their indexes."""
        for index, record in enumerate(records):
            if not self._places or (record.topic, record.message_id) not in self._places:
                yield index, record

    def add(self, record: Record) -> None:
        """Mark a record as confirmed while the rest of its batch is not."""
        if record.message_id:
            self._places.add((record.topic, record.message_id))

    def clear(self) -> None:
        """Forget all records once the batch is confirmed."""
        self._places.clear()
