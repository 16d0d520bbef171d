"""Producers: validate entries, append them to the topic's log, and send responses in order.

Design: an entry is stored exactly as received; only its number of messages and publish time are used. The log confirms
entries in append order, so a producer's pending responses are a queue whose head is confirmed next. Rejected entries
are part of that queue, because clients only fail a message if it is the oldest pending one. All checks precede any
change.

Source: Pulsar binary protocol, section Producer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, cast

import google_crc32c
from google.protobuf.message import DecodeError

from ...errors import (
    BrokerError,
    ChecksumError,
    MetadataError,
    ProducerBlockedQuotaExceededRefused,
    ProtocolError,
)
from ...wire.batch import MIN_MESSAGE_BYTES
from ...wire.bulk import Receipt, receipt_frames
from ...wire.commands import NO_REQUEST
from ...wire.payload import MAGIC_CHECKSUM, is_encrypted, open_payload
from ...wire.position import Position
from ...wire.pulsar_api_pb2 import (
    CommandCloseProducer,
    CommandProducer,
    CommandProducerSuccess,
    CommandSend,
    CommandSendError,
    MessageMetadata,
    ServerError,
)
from ...wire.runs import SendRow
from ...wire.strings import bad_string, parse_metadata
from ..errors import error_code
from ..times import iso_now
from .entry_checks import MAX_TIME_MS, unacceptable
from .rates import Meter
from .sequences import Verdict, ids_of, is_counted

if TYPE_CHECKING:
    from ..storage.port import EntryDone
    from .ports import ConnectionPort
    from .sequences import Sequence
    from .topic import Topic

log = logging.getLogger(__name__)

NOWHERE = Position((1 << 64) - 1, (1 << 64) - 1)
"""Position in the receipt of a duplicate entry: (-1, -1) as unsigned 64-bit integers."""

_HEAD = Struct(">HII")  # magic, checksum, size of the metadata
_checksum = google_crc32c.value

_REFUSED = -1
"""Number of messages that marks a rejected entry whose response is pending."""


_CPP, _GO = "Pulsar-CPP-", "Pulsar-Go-"
"""Version prefixes of clients that need special errors; the Python client uses the C++ prefix."""


def _with_text(payload: bytes) -> tuple[MessageMetadata, int, str | None]:
    """Return the metadata of a payload section, the body length, and an error if a string is not valid UTF-8."""
    try:
        metadata, body = open_payload(payload)
    except (StructError, DecodeError) as error:
        raise ProtocolError(f"SEND of {len(payload)} bytes contains no message metadata") from error
    field = bad_string(metadata)
    text = f"MessageMetadata field {field} is not valid UTF-8: encode strings as UTF-8" if field is not None else None
    return metadata, len(payload) - body, text


class Producer:
    """A producer of a connection on a topic.

    Attributes:
        schema_version: schema version in wire format; empty without a schema.
        is_encrypted: whether the client has announced that it encrypts messages.
        is_ready: whether the producer may send; False while it waits for exclusive access.
        messages_in: number of messages stored so far.
        bytes_in: number of bytes stored so far.
        sequence: sequence ids of the producer name; None without deduplication.
    """

    def __init__(
        self, topic: Topic, connection: ConnectionPort, command: CommandProducer, name: str, schema_version: bytes
    ):
        self.topic = topic
        self.connection = connection
        self.name = name
        self.id = command.producer_id
        self.request_id = command.request_id
        self.epoch = command.epoch
        self.schema_version = schema_version
        self.is_encrypted = command.encrypted
        self.access_mode = command.producer_access_mode
        self.requested_topic_epoch = command.topic_epoch if command.HasField("topic_epoch") else None
        self.metadata = {pair.key: pair.value for pair in command.metadata}
        self.is_ready = True
        self.is_detached = False
        self.messages_in = 0
        self.bytes_in = 0
        self.has_chunks = False
        self.sequence: Sequence | None = None
        self.connected_since = iso_now()
        self.meter = Meter(2)
        self._receipts: list[Receipt] = []
        self._is_appending = False
        self._failure: tuple[int, Exception] | None = None
        self._refusals: deque[tuple[ServerError, str]] = deque()
        self._has_refused = False
        self._pending: deque[tuple[int, int, int, int]] = deque()
        self._idle: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"Producer({self.name!r}, id={self.id}, topic={self.topic.name}, pending={len(self._pending)})"

    @property
    def pending_entries(self) -> int:
        """Number of entries that storage has not confirmed."""
        return len(self._pending)

    def publish(self, send: CommandSend, payload: bytes) -> bool:
        """Store an entry; the response is sent once it is on disk.

        Returns:
            Whether the response is pending, until the receipt or `ConnectionPort.publishes_answered`.

        Raises:
            ProtocolError: the payload section is malformed, or the producer may not send yet.
        """
        text = None
        bytes_ = len(payload)
        gate = self.topic.gate
        try:
            magic, checksum, size = _HEAD.unpack_from(payload)
            if magic == MAGIC_CHECKSUM:
                if _checksum(payload[6:]) != checksum:
                    return self._damaged(send)
                body_bytes = bytes_ - 10 - size
                if body_bytes < 0:
                    raise ProtocolError(f"SEND of {bytes_} bytes declares {size} bytes of metadata")
                metadata = parse_metadata(payload[10 : 10 + size])
            else:
                metadata, body_bytes, text = _with_text(payload)
        except (StructError, DecodeError):
            metadata, body_bytes, text = _with_text(payload)
        if not self.is_ready:
            raise ProtocolError(
                f"producer {self.name!r} sent an entry without exclusive access: wait for producer_ready"
            )
        messages = metadata.num_messages_in_batch  # 1 if the field is missing
        publish_time_ms = metadata.publish_time
        if send.HasField("txnid_least_bits"):
            text = "Transaction buffer disable!"
        elif publish_time_ms > MAX_TIME_MS or (messages != 1 and not 0 < messages * MIN_MESSAGE_BYTES <= body_bytes):
            text = unacceptable(metadata, body_bytes, self.connection.config.max_message_bytes) or text
        if metadata.deliver_at_time > 0 and text is None:
            text = self._delay_refusal(metadata)
        if gate is not None and text is None:
            if gate.takes_encrypted_only and not metadata.encryption_keys:
                return self._unencrypted(send)
            if not send.is_chunk:
                text = gate.refusal(bytes_)
        if text is not None:
            return self.refuse(send, text)
        if gate is not None:
            gate.take(messages, bytes_)
        if send.is_chunk:
            self.has_chunks = True
        done: EntryDone = self._stored
        if self.sequence is not None:
            stored = self._unless_repeated(self.sequence, send, metadata)
            if isinstance(stored, bool):
                return stored
            done = stored
        if metadata.deliver_at_time > 0 and not self.topic.is_closed:
            self.topic.log.expect_delayed()
        self._pending.append((send.sequence_id, send.highest_sequence_id, messages, bytes_))
        self._is_appending = True
        self.topic.append(payload, messages, publish_time_ms, done)
        self._is_appending = False
        return True

    def _delay_refusal(self, metadata: MessageMetadata) -> str | None:
        """Return the reason for rejecting the delivery time of an entry, or None."""
        limit_ms = self.topic.broker.namespaces.delayed_delivery(self.topic.name).max_delay_ms
        if limit_ms and metadata.deliver_at_time - metadata.publish_time > limit_ms:
            return f"Exceeds max allowed delivery delay of {limit_ms} milliseconds"
        return None

    def publish_all(self, rows: list[SendRow]) -> int:
        """Store valid entries in order, each like `publish`.

        Returns:
            The number of entries with a pending response.

        Raises:
            ProtocolError: the producer may not send yet.
        """
        if not self.is_ready:
            raise ProtocolError(
                f"producer {self.name!r} sent an entry without exclusive access: wait for producer_ready"
            )
        append, pending, sequence = self.topic.append, self._pending, self.sequence
        done: EntryDone = self._stored
        count = 0
        for sequence_id, highest_sequence_id, messages, publish_time_ms, payload in rows:
            if sequence is not None:
                last = max(sequence_id, highest_sequence_id)
                stored = self._judged(sequence, sequence_id, last, (sequence_id, highest_sequence_id, 0, 0))
                if isinstance(stored, bool):
                    count += stored
                    continue
                done = stored
            pending.append((sequence_id, highest_sequence_id, messages, len(payload)))
            count += 1
            self._is_appending = True
            append(payload, messages, publish_time_ms, done)
            self._is_appending = False
            if self._failure is not None:
                break  # the producer was removed from the connection, so later entries are ignored
        return count

    def is_throttled(self) -> bool:
        """Return whether the publish rate limit is exhausted; if so, the connection stops reading for some time."""
        wait_s = self.topic.gate.wait_s() if self.topic.gate is not None else 0.0
        if wait_s > 0:
            self.connection.throttle(wait_s)
        return wait_s > 0

    def publish_some(self, rows: list[SendRow]) -> tuple[int, list[SendRow]]:
        """Store entries like `publish_all`, but for a topic with limits, and only until the rate limit is exhausted.

        Returns:
            The number of entries with a pending response, and the entries that must wait.

        Raises:
            ProtocolError: the producer may not send yet.
        """
        count = 0
        for index, row in enumerate(rows):
            gate = self.topic.gate
            if gate is None or self._failure is not None:
                return count + self.publish_all(rows[index:] if self._failure is None else []), []
            if self.is_throttled():
                return count, rows[index:]
            sequence_id, highest_sequence_id, messages, _, payload = row
            text = gate.refusal(len(payload))
            is_clear = gate.takes_encrypted_only and not is_encrypted(payload)
            if text is None and not is_clear:
                gate.take(messages, len(payload))
                count += self.publish_all([row])
                continue
            send = CommandSend(sequence_id=sequence_id, highest_sequence_id=highest_sequence_id)
            count += self._unencrypted(send) if text is None else self.refuse(send, text)
        return count, []

    def _unless_repeated(self, sequence: Sequence, send: CommandSend, metadata: MessageMetadata) -> EntryDone | bool:
        """Return the callback for an entry to be stored; for a duplicate, return whether its response is pending."""
        if not is_counted(metadata):
            return self._stored
        first, last = ids_of(send)
        return self._judged(sequence, first, last, (send.sequence_id, send.highest_sequence_id, 0, 0))

    def _judged(self, sequence: Sequence, first: int, last: int, answer: tuple[int, int, int, int]) -> EntryDone | bool:
        """Same as `_unless_repeated`, but with an entry's sequence ids; for a duplicate, ``answer`` is queued."""
        verdict = sequence.judge(first, last)
        if verdict is Verdict.NEW:
            return partial(self._stored_once, sequence, last)
        if verdict is Verdict.UNDECIDED:
            text = f"[{self.topic.name}][{self.name}]Cannot determine whether the message is a duplicate at this time"
            self._send_error(max(answer[0], answer[1]), ServerError.PersistenceError, text)
            return False
        # The receipt must not precede those of earlier entries.
        self._pending.append(answer)
        if len(self._pending) == 1:
            self._stored(NOWHERE, None)
        else:
            self._is_appending = True
            self.topic.deduplication.barrier(partial(self._stored, NOWHERE))
            self._is_appending = False
        return True

    def _stored_once(self, sequence: Sequence, last: int, position: Position, error: Exception | None) -> None:
        self.topic.deduplication.ended(sequence, last, position, is_stored=error is None)
        self._stored(position, error)

    def _stored(self, position: Position, error: Exception | None) -> None:
        if error is not None:
            self._not_stored(error)
            return
        sequence_id, highest_sequence_id, messages, bytes_ = self._pending.popleft()
        self.messages_in += messages
        self.bytes_in += bytes_
        if not self._receipts:
            self.connection.answer_later(self)
        self._receipts.append((sequence_id, highest_sequence_id, position))
        self.topic.grew()
        if self._refusals:
            self._answer_refused()
        if not self._pending:
            self._became_idle()

    def take_receipts(self) -> tuple[bytes, int]:
        """Remove and return the frames of the unsent receipts, and the number of entries that they confirm."""
        frames = receipt_frames(self.id, self._receipts)
        entries = len(self._receipts)
        self._receipts.clear()
        return frames, entries

    def _damaged(self, send: CommandSend) -> bool:
        """Reject an entry with a wrong checksum, and return whether its response is pending.

        With deduplication, later entries must not be accepted first, or the resent entry would look like a duplicate.
        """
        return self._refuse_repeatable(send, ChecksumError("Checksum failed on the broker"))

    def _unencrypted(self, send: CommandSend) -> bool:
        """Reject an entry that is not encrypted although it must be; return whether its response is pending."""
        return self._refuse_repeatable(send, MetadataError("Messages must be encrypted"))

    def _refuse_repeatable(self, send: CommandSend, error: BrokerError) -> bool:
        if self.sequence is None:
            return self._refuse_in_order(send, cast(ServerError, error.code), str(error))
        self._pending.append((send.sequence_id, send.highest_sequence_id, 0, 0))
        self._is_appending = True
        self._not_stored(error)
        self._is_appending = False
        return True

    def _not_stored(self, error: Exception) -> None:
        """Stop accepting entries after one that was not stored, since later entries must not be stored before it.

        The client receives the responses in order: the receipts of stored entries, the error, then CLOSE_PRODUCER. It
        then recreates the producer and resends the unconfirmed entries.
        """
        # An entry may be rejected immediately, while earlier entries still wait for the disk.
        sequence_id, highest_sequence_id, _, _ = self._pending.pop() if self._is_appending else self._pending.popleft()
        self.connection.publishes_answered(1)
        if self._failure is None:
            self._failure = (max(sequence_id, highest_sequence_id), error)
            self.connection.remove_producer(self, ignores=True)
        if self._refusals:
            self._answer_refused()
        if not self._pending:
            self._became_idle()

    def _became_idle(self) -> None:
        if self._failure is not None and not self.is_detached:
            sequence_id, error = self._failure
            code, text = error_code(error)
            if isinstance(error, ProducerBlockedQuotaExceededRefused):
                self.connection.closed_producers.refuse(self.id, error)
            else:
                log.warning("closing %r because an entry was not stored: %s", self, text)
                self._send_error(sequence_id, code, text)
            self._tell_closed()
            self.detach()
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def refuse(self, send: CommandSend, text: str) -> bool:
        """Reject an entry permanently, so that the client fails the message and keeps its connection.

        No single error has that effect on all clients. The Java client fails the message on NotAllowedError; the C++
        and Python clients fail it on ChecksumError. After any other error, they reconnect and resend the message
        forever. The Go client does so after every error, but if a quota then blocks the creation of its producer, it
        fails the pending messages and continues.

        Source: Pulsar binary protocol, section SEND_ERROR.

        Returns:
            Whether the response is pending.
        """
        if not self._has_refused:
            self._has_refused = True
            log.info("%r: rejected an entry (logged only once per producer): %s", self, text)
        version = self.connection.client_version or ""
        if not version.startswith(_GO):
            is_cpp = version.startswith(_CPP)
            code = ServerError.ChecksumError if is_cpp else ServerError.NotAllowedError
            return self._refuse_in_order(send, code, text)
        if self._failure is None:
            self._failure = (send.sequence_id, ProducerBlockedQuotaExceededRefused(text))
            self.connection.remove_producer(self, ignores=True)
            if not self._pending:
                self._became_idle()
        return False

    def _refuse_in_order(self, send: CommandSend, code: ServerError, text: str) -> bool:
        """Reject an entry once all earlier entries are answered, and return whether the response is pending."""
        if not self._pending:
            self._refuse(send, code, text)
            return False
        self._pending.append((send.sequence_id, send.highest_sequence_id, _REFUSED, 0))
        self._refusals.append((code, text))
        return True

    def _answer_refused(self) -> None:
        """Answer the rejected entries at the head of the queue; after a failed entry, no answers are sent."""
        answered = 0
        while self._pending and self._pending[0][2] == _REFUSED:
            sequence_id, highest_sequence_id, _, _ = self._pending.popleft()
            code, text = self._refusals.popleft()
            answered += 1
            if self._failure is None:
                self._send_error(max(sequence_id, highest_sequence_id), code, text)
        self.connection.publishes_answered(answered)

    def _refuse(self, send: CommandSend, code: ServerError, text: str) -> None:
        self._send_error(max(send.sequence_id, send.highest_sequence_id), code, text)

    def _send_error(self, sequence_id: int, code: ServerError, text: str) -> None:
        error = CommandSendError(producer_id=self.id, sequence_id=sequence_id, error=code, message=text)
        self.connection.reply(error)

    async def idle(self) -> None:
        """Wait until all entries are answered.

        Cancellation: safe.
        """
        if self._pending:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def succeed(self, topic_epoch: int | None) -> None:
        """Send PRODUCER_SUCCESS; a producer that is not ready yet receives another one later."""
        self.connection.reply(
            CommandProducerSuccess(
                request_id=self.request_id,
                producer_name=self.name,
                last_sequence_id=-1 if self.sequence is None else self.sequence.last,
                schema_version=self.schema_version,
                topic_epoch=topic_epoch,
                producer_ready=self.is_ready,
            )
        )

    def fence(self, error: Exception | None) -> None:
        """Remove the producer from the connection; if it sends afterwards, the connection is closed.

        Args:
            error: response to the creation of a waiting producer; None for a ready producer.
        """
        self.connection.remove_producer(self)
        self.is_detached = True
        if error is not None:
            self.connection.fail(self.request_id, error)

    def close_by_broker(self) -> None:
        """Notify the client that the broker closes this producer; entries already sent by the client are ignored."""
        self.connection.remove_producer(self, ignores=True)
        self._tell_closed()
        self.detach()

    def _tell_closed(self) -> None:
        self.connection.tell_closed(CommandCloseProducer(producer_id=self.id, request_id=NO_REQUEST))

    def detach(self) -> None:
        """Remove the producer from its topic, unless it was already removed."""
        if not self.is_detached:
            self.is_detached = True
            self.topic.producers.remove(self)
