"""Which records of a batch are confirmed, for sinks whose target takes them one by one.

A batch of which some records are not confirmed is given again: because one was refused, or the target went away. Those
that are known to be there need not be written a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..api.connector import Record


class Confirmed:
    """What of the batch at hand the target has confirmed; it lives as long as the connector, across its openings."""

    def __init__(self) -> None:
        """Nothing is confirmed yet."""
        self._places: set[tuple[str, str]] = set()

    def missing(self, records: Sequence[Record]) -> Iterator[tuple[int, Record]]:
        """Yield the records of a batch that are not confirmed yet, each with its index in the batch."""
        for index, record in enumerate(records):
            if not self._places or (record.topic, record.message_id) not in self._places:
                yield index, record

    def add(self, record: Record) -> None:
        """The target has confirmed a record, and others of its batch are missing."""
        if record.message_id:
            self._places.add((record.topic, record.message_id))

    def clear(self) -> None:
        """The whole batch is confirmed; it does not come again."""
        self._places.clear()
