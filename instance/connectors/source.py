"""Run a source: send its records to the output topic, and save its position.

    Source.read → records → entries → output → receipts → position → acknowledgement

The connector's thread reads, encodes and ships records; it waits while too many are in flight. A batch of records is
settled when all its entries, and all earlier ones, are durable. The saved position is the one after the last settled
batch: after a restart the source starts there and rereads all later records. A source reopened in a running instance
starts after its last record, once all records are durable.

EFFECTIVELY_ONCE: records are numbered in the order of reading, and the number is the sequence id, under a producer name
of the instance. The number of records is saved with the position. Records reread after a restart get the same numbers
as before, and those already stored by the broker are skipped here. A record's key or number determines its partition.
Records are acknowledged only when the position after them is saved: a source may then discard them, because they are
never reread.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, SupportsIndex

from ...api.connector import DeadLetter, EndOfInput, Record, Source
from ...api.serde import SerDe
from ...client.config import Compression
from ...client.outgoing_message import NO_VALUE
from ...client.producers.outgoing import OutgoingEntry, encode_entry
from ...errors import InvalidConfig
from ...wire.batch import encode_attributes
from ...wire.pulsar_api_pb2 import KeyValue, SingleMessageMetadata
from ..acks.dead_letters import text_of
from ..acks.publisher import Ticket
from ..batch_call import Failure
from ..gate import Gate, runs_within
from ..publish_request import MESSAGE_BYTES_MAX, MessageOptions, PublishRequest
from ..stopping import InstanceStopping
from .positions import Kept
from .session import AWAY, ConnectorSession
from .source_letters import SourceLetters
from .transform import Transform
from .values import WrongRecord, encoded

IDLE_S = 0.05
"""Pause after a read that returned nothing immediately."""
END_S = 0.5
"""Interval between checks after the end of the input."""
ENTRY_MESSAGES_MAX = 1000
ENTRY_BYTES_MAX = 1 << 20
_LINES_MAX = 10
"""Maximum log lines about unsent records per read; one more line has the number of others."""


@dataclass(slots=True)
class ReadBatch:
    """The result of one read.

    Attributes:
        records: records read; empty if only the position has moved.
        kept: position of the source after the records.
        opening: opening of the connector in which they were read.
        size: size of the entries in bytes.
        entries: the records as entries, each with its partition number.
        others: records with their own topic, and dead letters.
        refused: why records cannot be messages, by index; only for records with `Record.refuse`.
        tickets: tickets of published ``others``.
        then: called on the event loop when the batch is settled.
        waiting_for: number of missing receipts; used by the event loop.
        error: why a record was not stored; used by the event loop.
        error_topic: topic of that record, if not the output topic; used by the event loop.
    """

    records: Sequence[Record]
    kept: Kept
    opening: int
    size: int = 0
    entries: list[tuple[int, OutgoingEntry]] = field(default_factory=list)
    others: list[PublishRequest] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    tickets: list[Ticket] = field(default_factory=list)
    then: Callable[[], None] | None = None
    waiting_for: int = 0
    error: BaseException | None = None
    error_topic: str = ""


@dataclass(slots=True)
class _Run:
    """Records of one partition with consecutive numbers."""

    partition: int
    first: int
    payloads: list[bytes] = field(default_factory=list)
    headers: list[bytes] = field(default_factory=list)


class Outlet(Protocol):
    """Destination of records; called on the connector's thread.

    Attributes:
        gate: limits the records in flight.
    """

    gate: Gate

    def ship(self, batch: ReadBatch) -> None:
        """Send a batch."""

    def leave_out(self, text: str, count: int = 1) -> None:
        """Count records that are not sent, and log a line about them."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Properties of the open output.

    Attributes:
        route: returns the partition of a record by its key and number.
        stored: highest stored number per partition; -1 if none is known or used.
        is_exact: whether records are numbered.
    """

    route: Callable[[str | None, int], int]
    stored: Sequence[int]
    is_exact: bool


class SourceReader:
    """Reads a source, on the connector's thread.

    Attributes:
        finished: called after each read; returns a callback for when all records are durable, or None.
        letters_read: called after each read; returns dead letters to send with the records.
    """

    def __init__(
        self,
        source: Source,
        session: ConnectorSession,
        serde: SerDe,
        compression: Compression,
        outlet: Outlet,
        letters: SourceLetters,
    ) -> None:
        """Create a reader.

        Args:
            source: source to read.
            session: calls the source.
            serde: encodes values.
            compression: compression of entries.
            outlet: receives the records.
            letters: creates dead letters for records that cannot be messages.
        """
        self._source = source
        self._session = session
        self._serde = serde
        self._compression = compression
        self._outlet = outlet
        self._letters = letters
        self._transform: Transform | None = None
        self._settled: deque[ReadBatch] = deque()
        self._left_out: list[str] = []  # log lines about unsent records of the current read
        self._at = Kept()
        self._to: Destination
        self._is_at_end = False
        self.finished: Callable[[], Callable[[], None] | None] = lambda: None
        self.letters_read: Callable[[], list[PublishRequest]] = list

    def use(self, transform: Transform | None) -> None:
        """Set the function that is applied to records before encoding, or None."""
        self._transform = transform

    def begin(self, kept: Kept, destination: Destination) -> None:
        """Set the start position and the destination, before the first read (from any thread)."""
        self._at = kept
        self._to = destination

    @property
    def at(self) -> Kept:
        """The source's position after its last record."""
        return self._at

    def settled(self, batch: ReadBatch) -> None:
        """Acknowledge the records of a batch before the next read (from any thread)."""
        self._settled.append(batch)

    def read(self) -> int:
        """Read once, ship the records, and return their number.

        Raises:
            InstanceStopping: the instance is stopping.
            WrongRecord: the result has an invalid type; nothing is shipped.
        """
        self.acknowledge()
        if self._is_at_end:
            self._session.wait(END_S)
            return 0
        began_s = time.monotonic()
        try:
            found = self._session.call(self._source.read)
        except EndOfInput:
            self._is_at_end = True
            return 0
        records = _records(found)
        count = len(records)
        try:
            text = json.dumps(self._source.snapshot(), separators=(",", ":"))
        except AWAY as error:  # no record was shipped, so all will be reread
            self._session.lost(error)
            return 0
        then = self.finished()
        if count or text != self._at.text or then is not None:
            first = self._at.records
            kept = self._at._replace(text=text, records=first + count)
            batch = ReadBatch(records, kept, self._session.opening, others=self.letters_read(), then=then)
            if count:
                self._encode(batch, first)
            if not self._outlet.gate.enter(count, batch.size):
                raise InstanceStopping
            self._at = kept
            self._outlet.ship(batch)
        if not count and time.monotonic() - began_s < IDLE_S:
            self._session.wait(IDLE_S)
        return count

    def acknowledge(self) -> None:
        """Call the acknowledgement callbacks of settled records."""
        while self._settled:
            batch = self._settled.popleft()
            for index, record in enumerate(batch.records):
                call = record.acknowledge if batch.error is None else record.fail
                if batch.refused and batch.error is None and index in batch.refused and record.refuse is not None:
                    call = partial(record.refuse, batch.refused[index])
                if call is not None:
                    self._session.call_back(batch.opening, call)

    # -- encoding -------------------------------------------------------------------------------------------------

    def _encode(self, batch: ReadBatch, first: int) -> None:
        """Encode the records of a batch; ``first`` is the number of the first record."""
        records = self._transformed(batch)
        for run in self._plain_run(records, first) or self._runs(batch, records, first):
            payloads = run.payloads
            headers = run.headers if any(run.headers) else None
            batch.size += sum(map(len, payloads))
            for part in runs_within(map(len, payloads), ENTRY_MESSAGES_MAX, ENTRY_BYTES_MAX):
                entry = encode_entry(
                    payloads[part],
                    None if headers is None else headers[part],
                    compression=self._compression,
                    sequence_id=run.first + part.start if self._to.is_exact else None,
                )
                batch.entries.append((run.partition, entry))
        if self._left_out:
            self._report_left_out()

    def _transformed(self, batch: ReadBatch) -> Sequence[Record | None]:
        """Return the records of a batch to send, with None for unsent ones."""
        given = batch.records
        has_letters = any(issubclass(kind, DeadLetter) for kind in set(map(type, given)))
        if self._transform is None and not has_letters:
            return given
        sent: list[Record | None] = list(given)
        for index, record in enumerate(given if has_letters else ()):
            if isinstance(record, DeadLetter):
                self._leave_out(batch, index, record, record.reason)
                sent[index] = None
        if self._transform is not None:
            places = [index for index, record in enumerate(sent) if record is not None]
            failures: list[Failure] = []
            outputs = self._transform.outputs([given[index] for index in places], failures)
            for failure in failures:
                index = places[failure.position]
                self._leave_out(batch, index, given[index], text_of(failure.error))
            for index, output in zip(places, outputs, strict=True):
                sent[index] = output
        return sent

    def _leave_out(self, batch: ReadBatch, index: int, record: Record, reason: str) -> None:
        """Dead-letter a record that cannot be a message, or reject it through its `Record.refuse`.

        Args:
            batch: batch that contains the record.
            index: the record's index in the batch.
            record: rejected record.
            reason: why it cannot be a message.
        """
        if batch.records[index].refuse is not None:
            batch.refused[index] = reason
            self._left_out.append(f"rejected a record: {reason}")
            return
        letters = list(self._letters.requests(record, reason))
        batch.others += letters
        batch.size += sum(len(letter.payload) for letter in letters)
        self._left_out.append(f"sending a record to the dead-letter topic: {reason}")

    def _report_left_out(self) -> None:
        """Count and log the unsent records of a read, up to `_LINES_MAX` individually."""
        lines, self._left_out = self._left_out, []
        for line in lines[:_LINES_MAX]:
            self._outlet.leave_out(line)
        if (more := len(lines) - _LINES_MAX) > 0:
            self._outlet.leave_out(f"{more} more records of this read were not sent; the last one: {lines[-1]}", more)

    def _plain_run(self, given: Sequence[Record | None], first: int) -> list[_Run]:
        """Return records as one run if none requires special treatment; otherwise an empty list."""
        stored = self._to.stored
        records = [record for record in given if record is not None]
        if len(records) < len(given):
            return []
        if len(stored) > 1 or first <= stored[0] or any(record.topic for record in records):
            return []
        try:
            values = [record.value for record in records]
            if None in values:
                return []
            payloads = encoded(values, self._serde)
            headers = _headers(records)
        except Exception:  # noqa: BLE001  a SerDe may raise anything; records are then encoded one by one
            return []
        largest = max(map(len, payloads)) + max(map(len, headers), default=0)
        return [] if largest > MESSAGE_BYTES_MAX else [_Run(0, first, payloads, headers)]

    def _runs(self, batch: ReadBatch, records: Sequence[Record | None], first: int) -> Iterator[_Run]:
        """Encode records one by one, and yield them in runs, without stored ones and those that cannot be sent."""
        stored, is_exact = self._to.stored, self._to.is_exact
        open_runs: dict[int, _Run] = {}
        for number, record in enumerate(records, first):
            if record is None:
                continue
            message = self._message(record)
            if isinstance(message, str):
                self._leave_out(batch, number - first, record, message)
                continue
            payload, header = message
            if record.topic:
                if is_exact:
                    raise InvalidConfig(
                        f"a record sets the topic {record.topic}, but EFFECTIVELY_ONCE supports only the output topic:"
                        " use ATLEAST_ONCE"
                    )
                batch.others.append(PublishRequest(record.topic, payload, options=_options(record)))
                continue
            partition = self._to.route(record.key, number)
            if number <= stored[partition]:
                continue
            run = open_runs.get(partition)
            if run is None or (is_exact and run.first + len(run.payloads) != number):
                if run is not None:
                    yield run
                run = open_runs[partition] = _Run(partition, number)
            run.payloads.append(payload)
            run.headers.append(header)
        yield from open_runs.values()

    def _message(self, record: Record) -> tuple[bytes, bytes] | str:
        """Return a record's payload and header, or why it cannot be a message."""
        try:
            payload = NO_VALUE if record.value is None else encoded([record.value], self._serde)[0]
            header = _header(record)
        except WrongRecord:
            raise
        except Exception as error:  # noqa: BLE001  a SerDe may raise anything
            return f"{type(error).__name__}: {error}"
        if len(payload) + len(header) > MESSAGE_BYTES_MAX:
            size = len(payload) + len(header)
            return f"record of {size} bytes exceeds the message size limit of {MESSAGE_BYTES_MAX} bytes"
        return payload, header


def _records(found: Any) -> Sequence[Record]:
    """Convert the result of a read to a sequence of records.

    Raises:
        WrongRecord: the result has another type.
    """
    if found is None:
        return ()
    if isinstance(found, Record):
        return (found,)
    if isinstance(found, str | bytes | bytearray | memoryview) or not isinstance(found, Sequence):
        given = f"a value of type {type(found).__name__}"
    elif all(issubclass(kind, Record) for kind in set(map(type, found))):
        return found
    else:
        kind = next(type(one).__name__ for one in found if not isinstance(one, Record))
        given = f"a {type(found).__name__} with a value of type {kind}"
    raise WrongRecord(f"read returned {given}: expected a Record, a list of Records, or None")


def _has_header(record: Record) -> bool:
    return record.key is not None or bool(record.properties) or bool(record.event_time_ms)


def _headers(records: Sequence[Record]) -> list[bytes]:
    """Return the headers of records; neighbours with equal properties, such as lines of a file, share one."""
    headers: list[bytes] = []
    header = b""
    last: Record | None = None
    for record in records:
        if (
            last is None
            or record.properties is not last.properties
            or record.key != last.key
            or record.event_time_ms != last.event_time_ms
            or (record.value is None) != (last.value is None)
        ):
            header, last = _header(record), record
        headers.append(header)
    return headers if any(headers) else []


def _header(record: Record) -> bytes:
    if not _has_header(record) and record.value is not None:
        return b""
    header = SingleMessageMetadata()
    if record.key is not None:
        if not isinstance(record.key, str):
            raise WrongRecord(f"a record's key must be a str, not {type(record.key).__name__}")
        header.partition_key = record.key
    if record.event_time_ms:
        if not isinstance(record.event_time_ms, SupportsIndex):
            kind = type(record.event_time_ms).__name__
            raise WrongRecord(f"a record's event_time_ms must be an int, milliseconds since 1970, not {kind}")
        if not 0 < record.event_time_ms < 1 << 63:
            raise ValueError(f"invalid event_time_ms {record.event_time_ms}: expected milliseconds since 1970")
        header.event_time = record.event_time_ms
    if record.value is None:
        header.null_value = True
    if record.properties and not isinstance(record.properties, Mapping):
        raise WrongRecord(f"a record's properties must be a dict of str, not {type(record.properties).__name__}")
    header.properties.extend(
        KeyValue(key=str(key), value=str(value)) for key, value in (record.properties or {}).items()
    )
    return encode_attributes(header)


def _options(record: Record) -> MessageOptions:
    options = MessageOptions(properties=dict(record.properties))
    if record.key is not None:
        options["key"] = record.key
    if record.event_time_ms:
        options["event_time_ms"] = record.event_time_ms
    return options
