"""A source in the place of input and function: what it reads goes to the output topic, and its position is kept.

    Source.read → records → entries → output → receipts → position

The connector's thread reads, encodes and ships; it waits where too much is on its way. A batch of records is settled
when all its entries are durable. The position kept is that behind the last batch before which everything is settled:
after a start the source begins there, and what it had read beyond comes again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...api.connector import EndOfInput, Position, Record, Source
from ...api.serde import SerDe
from ...client.config import Compression
from ...client.producers.outgoing import OutgoingEntry, encode_entry
from ...wire.pulsar_api_pb2 import KeyValue, SingleMessageMetadata
from ..gate import Gate, runs_within
from ..publish_request import MESSAGE_BYTES_MAX, MessageOptions, PublishRequest
from ..stopping import InstanceStopping
from .session import ConnectorSession
from .values import encoded

IDLE_S = 0.05
"""How long nothing is read after a read that returned nothing at once."""
ENTRY_MESSAGES_MAX = 1000
ENTRY_BYTES_MAX = 1 << 20


@dataclass(slots=True)
class ReadBatch:
    """What one read returned, on its way to the output.

    Attributes:
        records: of it.
        entries: they as entries.
        others: those that name another topic.
        position: behind them.
        size: bytes of the entries.
        waiting_for: receipts that are missing; the event loop's.
        error: why one of them was not stored; the event loop's.
    """

    records: Sequence[Record]
    entries: list[OutgoingEntry]
    others: list[PublishRequest]
    position: Position
    size: int
    waiting_for: int = 0
    error: BaseException | None = None


class Outlet(Protocol):
    """Where what was read goes; called on the connector's thread.

    Attributes:
        gate: bounds what is on its way.
    """

    gate: Gate

    def ship(self, batch: ReadBatch) -> None:
        """Send a batch."""

    def leave_out(self, text: str) -> None:
        """Count and log that a record is left out."""


class SourceReader:
    """Reads a source, on its thread."""

    def __init__(
        self, source: Source, session: ConnectorSession, serde: SerDe, compression: Compression, outlet: Outlet
    ) -> None:
        """Prepare.

        Args:
            source: what to read.
            session: calls it.
            serde: encodes values.
            compression: of entries.
            outlet: takes what was read.
        """
        self._source = source
        self._session = session
        self._serde = serde
        self._compression = compression
        self._outlet = outlet
        self._settled: deque[ReadBatch] = deque()

    def settled(self, batch: ReadBatch) -> None:
        """Have the records of a batch acknowledged before the next read (from any thread)."""
        self._settled.append(batch)

    def read(self) -> int:
        """Read once, and ship what came; return how many records it was.

        Raises:
            InstanceStopping: the instance is to stop.
        """
        self.acknowledge()
        began_s = time.monotonic()
        try:
            found = self._session.call(self._source.read)
        except EndOfInput:
            self._session.wait(1.0)
            return 0
        records = [found] if isinstance(found, Record) else found or ()
        if not records:
            if time.monotonic() - began_s < IDLE_S:
                self._session.wait(IDLE_S)
            return 0
        batch = self._encode(records, self._source.snapshot())
        if not self._outlet.gate.enter(len(records), batch.size):
            raise InstanceStopping
        self._outlet.ship(batch)
        return len(records)

    def acknowledge(self) -> None:
        """Call back for the records that are settled."""
        while self._settled:
            batch = self._settled.popleft()
            for record in batch.records:
                call = record.acknowledge if batch.error is None else record.fail
                if call is not None:
                    self._session.call(call)

    def _encode(self, records: Sequence[Record], position: Position) -> ReadBatch:
        try:
            payloads = encoded([record.value for record in records], self._serde)
        except Exception:  # noqa: BLE001  whatever a SerDe raises; found again one by one
            records, payloads = self._those_that_can(records)
        if payloads and max(map(len, payloads)) > MESSAGE_BYTES_MAX:
            records, payloads = self._those_that_fit(records, payloads)
        batch = ReadBatch(records, [], [], position, sum(map(len, payloads)))
        if any(record.topic for record in records):
            records, payloads = self._put_aside(batch, records, payloads)
        headers = list(map(_header, records)) if any(map(_has_header, records)) else None
        for run in runs_within(map(len, payloads), ENTRY_MESSAGES_MAX, ENTRY_BYTES_MAX):
            part = None if headers is None else headers[run]
            batch.entries.append(encode_entry(payloads[run], part, compression=self._compression))
        return batch

    def _those_that_can(self, records: Sequence[Record]) -> tuple[list[Record], list[bytes]]:
        kept: list[Record] = []
        payloads: list[bytes] = []
        for record in records:
            try:
                payloads += encoded([record.value], self._serde)
            except Exception as error:  # noqa: BLE001  whatever a SerDe raises
                self._outlet.leave_out(f"a record is left out: {type(error).__name__}: {error}")
            else:
                kept.append(record)
        return kept, payloads

    def _those_that_fit(self, records: Sequence[Record], payloads: list[bytes]) -> tuple[list[Record], list[bytes]]:
        fitting = [len(payload) <= MESSAGE_BYTES_MAX for payload in payloads]
        for payload, fits in zip(payloads, fitting, strict=True):
            if not fits:
                self._outlet.leave_out(
                    f"a record of {len(payload)} bytes is left out: a message has at most {MESSAGE_BYTES_MAX}"
                )
        kept = [record for record, fits in zip(records, fitting, strict=True) if fits]
        return kept, [payload for payload, fits in zip(payloads, fitting, strict=True) if fits]

    def _put_aside(
        self, batch: ReadBatch, records: Sequence[Record], payloads: list[bytes]
    ) -> tuple[list[Record], list[bytes]]:
        """Have records that name a topic of their own published there."""
        rest: list[tuple[Record, bytes]] = []
        for record, payload in zip(records, payloads, strict=True):
            if record.topic:
                batch.others.append(PublishRequest(record.topic, payload, options=_options(record)))
            else:
                rest.append((record, payload))
        return [record for record, _ in rest], [payload for _, payload in rest]


def _has_header(record: Record) -> bool:
    return record.key is not None or bool(record.properties) or bool(record.event_time_ms)


def _header(record: Record) -> SingleMessageMetadata | None:
    if not _has_header(record):
        return None
    header = SingleMessageMetadata(payload_size=0)
    if record.key is not None:
        header.partition_key = record.key
    if record.event_time_ms:
        header.event_time = record.event_time_ms
    header.properties.extend(KeyValue(key=str(key), value=str(value)) for key, value in record.properties.items())
    return header


def _options(record: Record) -> MessageOptions:
    options = MessageOptions(properties=dict(record.properties))
    if record.key is not None:
        options["key"] = record.key
    if record.event_time_ms:
        options["event_time_ms"] = record.event_time_ms
    return options
