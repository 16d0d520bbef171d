"""Convert messages of a topic to the records of a sink."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...api.connector import Record
from ...api.serde import SerDe
from ...client.consumers.received import ReceivedEntry
from ...errors import ProtocolError
from ...wire.batch import header_text
from ...wire.position import Position
from ...wire.position_sequence import SequenceOverflow, first_message_number
from ..batch_call import Blame, Failure
from ..unit import Unit
from .values import decoded


class Placed(NamedTuple):
    """A record, and the position of its message in the unit."""

    position: int
    record: Record


def records_of(unit: Unit, serde: SerDe, failures: list[Failure], *, is_exact: bool = False) -> list[Placed]:
    """Convert the messages of a unit to records.

    A message without a value, which deletes its key, becomes a record with the value None.

    Args:
        unit: entries of one input.
        serde: decodes the messages.
        failures: list for the messages that cannot be converted.
        is_exact: whether each record requires a `Record.sequence`.

    Raises:
        SequenceOverflow: a required sequence exceeds its range.
    """
    values = decoded(unit.messages, serde, failures)
    failed = {failure.position: failure for failure in failures}
    records: list[Placed] = []
    for start, entry, indexes in unit.parts():
        if entry.metadata.num_chunks_from_msg > 1:
            error = ProtocolError("sinks do not support chunked messages: publish without chunking")
            places = range(start, start + len(indexes))
            failures += [Failure(position, error, Blame.SYSTEM) for position in places if position not in failed]
            continue
        first, topic, headers = _first_number(entry, is_exact), entry.topic, entry.headers
        text, is_batch = str(entry.message_id), entry.is_batch
        for position, index in enumerate(indexes, start):
            header: Any = entry.metadata if headers is None else headers[index]
            value = values[position]
            if header.null_value:
                value = None
                if position in failed:
                    failures.remove(failed.pop(position))
            if position in failed:
                continue
            records.append(
                Placed(
                    position,
                    Record(
                        value,
                        header_text(header.partition_key) if header.HasField("partition_key") else None,
                        {header_text(pair.key): header_text(pair.value) for pair in header.properties},
                        header.event_time,
                        topic,
                        f"{text}:{index}" if is_batch else text,
                        sequence=0 if first is None else first + index,
                    ),
                )
            )
    return records


def _first_number(entry: ReceivedEntry, is_exact: bool) -> int | None:
    message_id = entry.message_id
    try:
        return first_message_number(Position(message_id.ledger_id, message_id.entry_id), entry.num_messages)
    except SequenceOverflow:
        if is_exact:
            raise
        return None
