"""A sink in the place of a function: entries become records, and records calls of `Sink.write_batch`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ...api.connector import Batching, Record, RecordRefused, Sink
from ...api.serde import SerDe
from ...client.consumers.received import ReceivedEntry
from ...wire.position import Position
from ...wire.position_sequence import SequenceOverflow, first_message_number
from ..acks.pieces import Building, OpenInput, Piece, PieceMaker
from ..batch_call import Blame, Failure, Results
from ..function_thread import Calls, FunctionThread, Source
from ..gate import runs_within
from ..output_headers import message_id_of
from ..publish_request import MessageOptions, PublishRequest
from ..unit import Unit
from .session import ConnectorSession
from .values import decoded


class SinkCall:
    """Writes units to a sink, on the function's thread.

    Attributes:
        may_open: whether it may be opened yet; not before the instance has its lock.
    """

    def __init__(self, sink: Sink, session: ConnectorSession, batching: Batching) -> None:
        self.may_open = False
        self._sink = sink
        self._session = session
        self._batching = batching
        has_batches = type(sink).write_batch is not Sink.write_batch
        self._write_batch = sink.write_batch if has_batches else None

    def idle(self) -> None:
        """Open the sink if it is not, and have it do what is due by time."""
        if self.may_open:
            self._session.call(self._sink.idle)

    def write(self, unit: Unit, serde: SerDe) -> list[Failure]:
        """Write the messages of a unit, and return those that were not taken, by position.

        Raises:
            InstanceStopping: some are not written, and the instance is to stop.
        """
        failures: list[Failure] = []
        records = records_of(unit, serde, failures)
        sizes = [len(unit.messages[position]) for position, _ in records]
        for run in runs_within(sizes, self._batching.records, self._batching.size):
            self._write_records(records[run], failures)
        return failures

    def _write_records(self, records: list[tuple[int, Record]], failures: list[Failure]) -> None:
        while records:
            try:
                if self._write_batch is None:
                    count = 1
                    self._session.call(self._sink.write, records[0][1])
                else:
                    count = len(records)
                    self._session.call(self._write_batch, [record for _, record in records])
            except RecordRefused as error:
                index = 0 if self._write_batch is None else min(max(error.index, 0), len(records) - 1)
                count = min(max(error.written, 0), index)
                failures.append(Failure(records.pop(index)[0], error, Blame.SYSTEM))
            records = records[count:]


def records_of(unit: Unit, serde: SerDe, failures: list[Failure]) -> list[tuple[int, Record]]:
    """Return the records of a unit with their positions; messages that cannot be decoded are added to ``failures``."""
    values = decoded(unit.messages, serde, failures)
    undecoded = {failure.position for failure in failures}
    first = dict(zip(map(id, unit.entries), map(_first_number, unit.entries), strict=True))
    records = []
    for position, (entry, index) in enumerate(unit.places()):
        if position not in undecoded:
            records.append((position, _record(values[position], entry, index, first[id(entry)])))
    return records


def _first_number(entry: ReceivedEntry) -> int | None:
    message_id = entry.message_id
    try:
        return first_message_number(Position(message_id.ledger_id, message_id.entry_id), entry.num_messages)
    except SequenceOverflow:
        return None


def _record(value: Any, entry: ReceivedEntry, index: int, first_number: int | None) -> Record:
    header = entry.metadata if entry.headers is None else entry.headers[index]
    properties = {pair.key: pair.value for pair in header.properties} if header.properties else {}
    key = header.partition_key if header.HasField("partition_key") else None
    number = 0 if first_number is None else first_number + index
    message_id = str(message_id_of(entry, index))
    return Record(value, key, properties, header.event_time, entry.topic, message_id, sequence=number)


class SinkMaker(PieceMaker):
    """Makes pieces of what a sink has written; see `function_thread.Maker`.

    A record that is refused goes to the dead-letter topic, and is settled with the others when it is stored there.
    """

    def __init__(
        self,
        ship: Callable[[Piece], None],
        drop: Callable[[OpenInput, ReceivedEntry], None],
        publish: Callable[[PublishRequest], None],
        dead_letter_topic: Callable[[str], str],
    ) -> None:
        """Prepare.

        Args:
            ship: as in `PieceMaker`.
            drop: as in `PieceMaker`.
            publish: sends a message, which becomes a part of the next piece.
            dead_letter_topic: returns where refused messages of a topic go.
        """
        super().__init__(ship, drop)
        self._publish = publish
        self._dead_letter_topic = dead_letter_topic
        self._sink: SinkCall

    def use(self, sink: SinkCall, batching: Batching) -> None:
        """Write to a sink, so much at once."""
        self._sink = sink
        self._batching = batching

    def process(self, thread: FunctionThread, calls: Calls, source: Source, entry: ReceivedEntry) -> None:
        """See `function_thread.Maker`."""
        unit = self._gather(thread, source, entry)
        if not unit.entries or thread.is_stopping:
            return
        began_s = time.perf_counter()
        failures = self._sink.write(unit, source.serde)
        for failure in failures:
            self._give_away(thread, unit, failure)
        thread.count(Results([None] * len(unit), failures), time.perf_counter() - began_s)
        self._ship(calls, source, unit, len(unit), Building(0, began_s))

    def _give_away(self, thread: FunctionThread, unit: Unit, failure: Failure) -> None:
        entry, index = unit.locate(failure.position)
        message = f"message {message_id_of(entry, index)} of {entry.topic}"
        thread.refused(f"{message} was refused, and goes to {self._dead_letter_topic(entry.topic)}: {failure.error}")
        record = _record(None, entry, index, None)
        properties = {
            "REAL_TOPIC": entry.topic,
            "ORIGIN_MESSAGE_ID": record.message_id,
            "EXCEPTION": str(failure.error),
        }
        options = MessageOptions(properties={**record.properties, **properties})
        if record.key is not None:
            options["key"] = record.key
        payload = unit.messages[failure.position]
        self._publish(PublishRequest(self._dead_letter_topic(entry.topic), payload, options=options))
