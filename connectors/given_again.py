"""Confirmed records of a batch, for sinks whose target confirms records one by one.

A batch with unconfirmed records is written again, because a record was rejected or the target was unavailable. Records
that are known to be written need not be sent a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..api.connector import Record


class Confirmed:
    """Records of the current batch that the target has confirmed. Kept across reopening of the connector."""

    def __init__(self) -> None:
        """Start with no confirmed records."""
        self._places: set[tuple[str, str]] = set()

    def missing(self, records: Sequence[Record]) -> Iterator[tuple[int, Record]]:
        """Yield the unconfirmed records of a batch with their indexes."""
        for index, record in enumerate(records):
            if not self._places or (record.topic, record.message_id) not in self._places:
                yield index, record

    def add(self, record: Record) -> None:
        """Mark a record as confirmed while others of its batch are not."""
        if record.message_id:
            self._places.add((record.topic, record.message_id))

    def clear(self) -> None:
        """Forget the batch, which is confirmed completely."""
        self._places.clear()
