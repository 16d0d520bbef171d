"""Reads a range of a topic's entries, reconnects as needed, and reports data loss.

Design: a reader starts at the next planned entry. After a connection loss, a new reader resumes where the previous one
stopped, unless no entry arrives within `ReadOptions.poll_timeout_ms`. Entries that the broker skips between two entries
of the same reader are internal (transaction markers in Apache Pulsar). At the start of a reader or a ledger, however,
the first entry must be the planned one; if a later one arrives, the earlier entries were deleted by retention or an
administrator. If a ledger ends early, the broker is queried to find out which of the two happened.

A chunked message belongs to the range that contains its last chunk, so that it is read once regardless of how entries
are split (see `chunks`).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ...client.encryption.keys import UriKeyReader
from ...errors import (
    BrokerError,
    ConnectionLost,
    CredentialsUnavailable,
    CryptoError,
    DataLoss,
    OperationTimeout,
    ProtocolError,
    TopicNotFound,
)
from ...tasks import Backoff
from ...wire.compression import decompress
from ...wire.message_id import EARLIEST, MessageId
from ...wire.payload import open_payload, verify_checksum
from ...wire.position import Position
from ...wire.pulsar_api_pb2 import MessageMetadata
from .chunks import MAX_MESSAGE_BYTES, ChunkStore, is_chunk
from .connection import BlockingConnection, Routes
from .options import ReadOptions
from .ranges import Span, TopicRange
from .reader import BlockingReader

if TYPE_CHECKING:
    from ...client.encryption.decryption import Decryption

log = logging.getLogger(__name__)

_FIRST_PERMITS = 1_000  # until the number of messages per entry is known
_BACKOFF_S = (0.05, 2.0)
_LOOK_AFTER_S = 2.0  # seconds without an entry: planned entries arrive immediately, unless they no longer exist
_LOOK_BACK_CHUNKS = 4  # chunks of a message are close together, unless many producers send concurrently


class Entry(NamedTuple):
    """An entry, or a message assembled from several entries.

    Attributes:
        position: position of the entry.
        metadata: metadata of the entry.
        body: payload of the message, or of all messages of a batch.
    """

    position: Position
    metadata: MessageMetadata
    body: bytes

    @property
    def is_batch(self) -> bool:
        """Whether this entry is a batch, including a batch of one message."""
        return self.metadata.HasField("num_messages_in_batch")


class RangeReader:
    """Reads one range, once.

    Attributes:
        lost_entries: minimum number of lost entries; counted only without ``fail_on_data_loss``.
    """

    def __init__(self, wanted: TopicRange, options: ReadOptions):
        """Create a reader, which ignores the options that select topics and positions."""
        self.lost_entries = 0
        self._routes = Routes(options.service_url, options.security, options.timeouts)
        self._range = wanted
        self._options = options
        self._poll_timeout_s = options.poll_timeout_ms / 1000
        self._connection: BlockingConnection | None = None
        self._span = 0  # index of the span of `_next`
        self._next = wanted.start
        self._left = wanted.entries
        self._deadline = 0.0
        self._chunks = ChunkStore()
        self._decryption: Decryption | None = None
        if options.private_key:
            from ...client.encryption.decryption import Decryption  # import the library only if encryption is used

            self._decryption = Decryption(UriKeyReader(options.private_key))

    def entries(self) -> Iterator[Entry]:
        """Yield the range's entries in order.

        Raises:
            DataLoss: planned entries no longer exist, or did not arrive within the poll timeout.
            ProtocolError: an entry is corrupt, or encrypted with an unknown key.
            BrokerError: the broker permanently rejected the request.
            CredentialsUnavailable, TlsFailed: the options do not allow a connection.
        """
        self._deadline = time.monotonic() + self._poll_timeout_s
        setback: Exception | None = None
        backoff, has_moved = Backoff(*_BACKOFF_S), False
        try:
            while not self._is_done:
                try:
                    for entry in self._read_connected():
                        has_moved = True
                        yield entry
                    continue
                except TopicNotFound as error:
                    self._lose(f"the topic no longer exists ({error})", self._left)
                    return
                except (ConnectionLost, OperationTimeout, BrokerError, CredentialsUnavailable) as error:
                    # A credentials file that existed before may be about to be replaced.
                    is_missing = isinstance(error, CredentialsUnavailable) and self._left == self._range.entries
                    if is_missing or getattr(error, "is_final", False):
                        raise
                    setback = error
                finally:
                    self._disconnect()
                if has_moved:
                    backoff.reset()
                    has_moved = False
                pause_s = backoff.next_s()
                if time.monotonic() + pause_s >= self._deadline:
                    self._time_out(setback)
                    return
                time.sleep(pause_s)
        finally:
            self._disconnect()

    @property
    def _is_done(self) -> bool:
        return self._span == len(self._range.spans)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read_connected(self) -> Iterator[Entry]:
        """Yield entries until the connection is lost."""
        connection = self._connection = self._routes.connect_to(self._range.topic)
        reader = BlockingReader(
            connection, self._range.topic, MessageId(*self._next), self._options.subscription_prefix
        )
        permits = _Permits(self._options.ahead_messages)
        reader.flow(permits.first(self._left))
        is_first = True
        while not self._is_done:
            found = reader.next_entry(min(self._deadline, time.monotonic() + _LOOK_AFTER_S))
            if found is None:
                if time.monotonic() >= self._deadline:
                    raise OperationTimeout(f"{connection.address.physical} sent no entry")
                self._look(reader)
                continue
            position, payload = found
            if position < self._next:
                continue
            if not self._pass(position, is_first):
                return
            is_first = False
            entry = self._open(position, payload)
            whole = self._whole(entry)
            # Before anything that a lost connection could interrupt: this entry is passed, so it would not be read
            # again.
            if whole is not None:
                yield whole
            self._deadline = time.monotonic() + self._poll_timeout_s
            more = permits.used(entry.metadata.num_messages_in_batch, self._left)
            if more and not self._is_done:
                reader.flow(more)

    def _look(self, reader: BlockingReader) -> None:
        """Check whether no entry arrives because the rest of the range, and not only part of it, was deleted."""
        last = reader.last_message().last
        if last.entry_id < 0 or last < self._next:
            holds = "nothing" if last.entry_id < 0 else f"entries up to {last}"
            self._lose(f"the topic holds {holds}, but {self._next} was expected", self._left)
            self._span = len(self._range.spans)

    def _pass(self, position: Position, is_first: bool) -> bool:
        """Advance to the entry at ``position`` and count lost entries; return False if it is after the range."""
        spans = self._range.spans
        lost = position.entry_id - self._next.entry_id if is_first and position.ledger_id == self._next.ledger_id else 0
        if position.ledger_id != self._next.ledger_id:
            # The rest of the ledger did not arrive: it was deleted, or the broker skips it.
            missing = spans[self._span].last - self._next.entry_id + 1
            lost += missing if is_first or self._is_deleted(self._next) else 0
            self._span += 1
            while self._span < len(spans) and spans[self._span].ledger_id < position.ledger_id:
                lost += spans[self._span].entries
                self._span += 1
            if self._span < len(spans):
                lost += position.entry_id - spans[self._span].first
        if lost > 0:
            self._lose(f"the next entry is {position}, but {self._next} was expected", lost)
        if self._is_done or position > self._range.end:
            self._span = len(spans)
            return False
        span: Span = spans[self._span]
        self._left -= 1
        if position.entry_id < span.last:
            self._next = Position(span.ledger_id, position.entry_id + 1)
        else:
            self._span += 1
            if not self._is_done:
                self._next = Position(spans[self._span].ledger_id, spans[self._span].first)
        return True

    def _is_deleted(self, position: Position) -> bool:
        """Return whether the topic now starts after an entry; brokers delete the oldest entries first."""
        with contextlib.closing(self._routes.connect_to(self._range.topic)) as connection:
            reader = BlockingReader(connection, self._range.topic, EARLIEST, self._options.subscription_prefix)
            mark = reader.last_message().mark_delete
        return mark is not None and position <= mark

    def _lose(self, what: str, entries: int) -> None:
        self._count_lost(f"{what}; at least {entries} entries are lost", entries, self._options.remedy)

    def _time_out(self, setback: Exception | None) -> None:
        cause = f" ({setback})" if setback is not None and str(setback) else ""
        what = f"entry {self._next} did not arrive within {self._poll_timeout_s:g} s{cause}"
        self._count_lost(what, self._left, f"increase pollTimeoutMs, or {self._options.remedy}")

    def _count_lost(self, what: str, entries: int, remedy: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{self._range}: {what}; {remedy}")
        self.lost_entries += entries
        log.warning("%s: %s", self._range, what)

    def _open(self, position: Position, payload: bytes) -> Entry:
        what = f"entry {position} of {self._range.topic}"
        if verify_checksum(payload) is False:
            raise ProtocolError(f"{what} is corrupt: checksum mismatch over {len(payload)} bytes")
        metadata, offset = open_payload(payload)
        if not metadata.encryption_keys:
            return Entry(position, metadata, payload[offset:])
        if self._decryption is None:
            raise ProtocolError(
                f"{what} is encrypted: set option crypto.private.key or exclude the entry from the range"
            )
        try:
            body = self._decryption.decrypt(metadata, payload[offset:])
        except CryptoError as error:
            raise ProtocolError(f"{what} cannot be decrypted: {error}; check option crypto.private.key") from error
        metadata.ClearField("encryption_keys")
        return Entry(position, metadata, body)

    def _whole(self, entry: Entry) -> Entry | None:
        """Return an entry decompressed and with its chunks assembled, or None for a chunk of an incomplete message."""
        metadata = entry.metadata
        if is_chunk(metadata):
            if not self._chunks.add(metadata, entry.body):
                return None
            if self._chunks.missing(metadata):
                self._go_back(entry)
            if missing := self._chunks.missing(metadata):
                self._chunks.forget(metadata)
                self._lose(f"the chunked message ending at {entry.position} lacks {missing} of its chunks", missing)
                return None
            entry = entry._replace(body=self._chunks.take(metadata))
        if not metadata.compression:
            return entry
        body = decompress(metadata.compression, entry.body, metadata.uncompressed_size, MAX_MESSAGE_BYTES)
        return entry._replace(body=body)

    def _go_back(self, last: Entry) -> None:
        """Fetch the chunks of a message from before this range, starting further back in each attempt."""
        (ledger_id, entry_id), metadata = last.position, last.metadata
        near = MessageId(ledger_id, max(0, entry_id - _LOOK_BACK_CHUNKS * metadata.num_chunks_from_msg))
        for start in (near, MessageId(ledger_id, 0), EARLIEST):
            with contextlib.closing(self._routes.connect_to(self._range.topic)) as connection:
                reader = BlockingReader(connection, self._range.topic, start, self._options.subscription_prefix)
                while (found := self._next_before(reader, last.position)) is not None:
                    entry = self._open(*found)
                    if entry.metadata.uuid == metadata.uuid and is_chunk(entry.metadata):
                        self._chunks.add(entry.metadata, entry.body)
            if not self._chunks.missing(metadata):
                return

    def _next_before(self, reader: BlockingReader, end: Position) -> tuple[Position, bytes] | None:
        """Return the next entry of a reader, or None at ``end``."""
        reader.flow(1)
        found = reader.next_entry(time.monotonic() + self._poll_timeout_s)
        if found is None:
            raise OperationTimeout(f"received no entry of {self._range.topic} within {self._poll_timeout_s:g} s")
        return found if found[0] < end else None


class _Permits:
    """Number of messages that the broker may send: enough to avoid stalls, but few beyond the end of the range."""

    def __init__(self, ahead_messages: int) -> None:
        self._ahead_messages = ahead_messages
        self._granted = 0
        self._messages = 0
        self._entries = 0

    def first(self, entries_left: int) -> int:
        """Return the initial permits."""
        self._granted = 1 if entries_left < 2 else min(_FIRST_PERMITS, self._ahead_messages)
        return self._granted

    def used(self, messages: int, entries_left: int) -> int:
        """Count an entry and return the number of permits to grant now, which may be 0."""
        self._messages += messages
        self._entries += 1
        self._granted -= messages
        per_entry = self._messages / self._entries
        wanted = min(self._ahead_messages, max(1, int(per_entry * entries_left)))
        if self._granted > wanted // 2:
            return 0
        more = (
            wanted - self._granted
        )  # may be negative: batches are sent as a whole, and the broker's count may fall below zero
        self._granted += more
        return more
