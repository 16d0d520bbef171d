"""Sends messages to one topic (or one partition of it).

Design: each entry is first added to the pending queue, and removed from it by its receipt. A connection only sends
bytes from that queue, and a new connection first resends the whole queue in order. So a broken connection loses
nothing, but an entry whose receipt was lost may be stored twice, unless the broker's deduplication drops it by its
sequence ids.

The open batch is sent when it is full or its delay has passed. A batch with an awaited message does not wait for the
delay: it is sent at the end of the event loop iteration if nothing is in flight, and otherwise on the next receipt. A
single caller therefore waits for one round trip only, while messages of concurrent callers still share an entry.

Source: Pulsar binary protocol, section Producer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Unpack

from ... import errors
from ...errors import MagnetarError
from ...wire import pulsar_api_pb2 as pb
from ...wire.bulk import send_frame_head
from ...wire.message_id import MessageId, signed_64
from ...wire.payload import is_encrypted, verify_checksum
from ...wire.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata
from ...wire.topic_name import TopicName
from ..checks import as_bytes, check_integer
from ..config import ProducerConfig
from ..connections.attachment import Attachable, Attachment
from ..connections.connection import Connection, ProducerPort
from ..outgoing_message import NO_VALUE, SendOptions, due_ms, with_time
from ..receiving import Closing
from ..schemas.schema import BYTES, SchemaInfo
from ..statistics import ProducerCounts, ProducerStatistics, statistics_refusal
from .command import Creation
from .observed_queue import ObservedQueue, Shared
from .open_batch import Encoder, OpenBatch, split_by_key
from .outgoing import OutgoingEntry, delayed, describe, encode_entry
from .pending_queue import Admission, PendingQueue, PendingSend, SequenceIds, Verdict, fail_all
from .schema_renewal import renew_versions

if TYPE_CHECKING:
    from ..encryption.encryption import Encryption

log = logging.getLogger(__name__)


class Producer(Attachable, Closing):
    """A producer of one topic; created by `AsyncClient.create_producer` and used on its event loop.

    Attributes:
        topic: full name.
        name: producer name, chosen by the user or the broker.
        last_sequence_id: sequence id of the last message stored by the broker, or -1 before the first.
    """

    _final = (errors.ProducerFenced, errors.TopicTerminated, errors.TopicNotFound)
    _closed_at_once = "closed the producer immediately"

    def __init__(
        self,
        topic: TopicName,
        producer_id: int,
        config: ProducerConfig,
        attachment: Attachment,
        clock: Callable[[], float],
        shared: Shared | None = None,
    ):
        self.topic = topic.text
        self.name = config.name or ""
        self.last_sequence_id = -1
        self._partition = topic.partition
        self._id = producer_id
        self._config = config
        self._attachment = attachment
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._error: MagnetarError | None = None
        self._creation = Creation(self.topic, producer_id, config)
        self._ids = SequenceIds()
        self._encoder = Encoder(producer_id, config, clock)
        self._batch: OpenBatch
        self._pending: PendingQueue
        self._admission: Admission
        if shared is None:
            self._batch = OpenBatch(config.batch_max_messages, config.batch_max_bytes)
            self._pending = PendingQueue()
            self._admission = Admission(config, self._pending, self._batch)
        else:
            self._batch, self._pending, self._admission = shared.parts(config, self._loop.time)
        self._send_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"Producer(topic={self.topic!r}, name={self.name!r}, pending={self._pending.messages})"

    # -- sending --------------------------------------------------------------------------------------------------

    @property
    def pending_messages(self) -> int:
        """Number of messages sent but not yet stored."""
        return self._pending.messages + len(self._batch)

    @property
    def max_pending_messages(self) -> int:
        """Limit of `pending_messages`."""
        return self._config.max_pending_messages

    @property
    def blocks_if_full(self) -> bool:
        """Whether `send` waits for room."""
        return self._config.block_if_queue_full

    @property
    def has_room(self) -> bool:
        """Whether `send_nowait` and `send_entry` currently accept another message or entry."""
        return self._admission.room > 0

    async def ready(self) -> None:
        """Wait until there is room for another message or entry.

        Cancellation: safe.

        Raises:
            ClosedError: the producer was closed meanwhile.
            BrokerError: the broker permanently rejected the producer.
        """
        self._check_open()
        admission = self._admission
        if admission.waiting or admission.room <= admission.admitted:
            self._hurry()
            await admission.wait(self._check_open)

    async def send(self, payload: bytes, **options: Unpack[SendOptions]) -> MessageId:
        """Send a message and return its id once the broker has stored it.

        The message is batched with others sent in the same event loop iteration or while another entry is in flight;
        unlike messages of `send_nowait`, it does not wait for ``batch_max_delay_ms``.

        A message with ``deliver_at_ms`` is not batched, and Shared and Key_Shared subscriptions deliver it at that
        time, in ms since 1970; others deliver it immediately. ``deliver_after``, a timedelta, is relative to this call
        by the client's clock. Use `NO_VALUE` as the payload of a message without a value, and `Base64Key` for a bytes
        key.

        Cancellation: the message may still be stored.

        Raises:
            QueueFull: too many messages are pending and ``block_if_queue_full`` is off.
            MessageTooLarge: the message exceeds the broker's size limit.
            OperationTimeout: the message was not stored within ``send_timeout_ms``, but may still be stored later.
            ClosedError: the producer is closed, or was closed before the message was stored.
            BrokerError: the broker permanently rejected the message or the producer.
            InvalidConfig: an option is invalid, or both delivery times are set.
        """
        if self._config.block_if_queue_full:
            options = with_time(options, self._clock)
            await self.ready()
        return await self.send_awaited(payload, **options)

    def send_awaited(self, payload: bytes, **options: Unpack[SendOptions]) -> asyncio.Future[MessageId]:
        """Send a message whose caller awaits the receipt, like `send_nowait` but without the batching delay."""
        future = self.send_nowait(payload, **options)
        self._hurry()
        return future

    def send_nowait(  # noqa: PLR0913 - a dictionary would make each message slower
        self,
        payload: bytes,
        *,
        key: str | None = None,
        ordering_key: bytes | None = None,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int = 0,
        sequence_id: int | None = None,
        deliver_at_ms: int = 0,
        deliver_after: timedelta | None = None,
    ) -> asyncio.Future[MessageId]:
        """Send a message without waiting and return the future of its id; raises the same errors as `send`."""
        self._check_room()
        has_value = payload is not NO_VALUE
        if type(payload) is not bytes:
            payload = as_bytes(payload)
        encoder = self._encoder
        is_large = len(payload) > encoder.max_batched_bytes and encoder.goes_alone(len(payload))
        if is_large or deliver_at_ms or deliver_after is not None:
            metadata = self._metadata_alone(deliver_at_ms, deliver_after)
            describe(metadata, key, ordering_key, properties, event_time_ms, has_value=has_value)
            return Producer.send_alone(self, metadata, payload, sequence_id)
        is_bare = key is None and not properties and ordering_key is None and not event_time_ms and has_value
        if encoder.plain is not None and is_bare:
            first = self._ids.assign(sequence_id, 1)
            head, section = encoder.plain.frame(first, int(self._clock() * 1000), payload)
            future = self._loop.create_future()
            self._enqueue(PendingSend(first, first, head, section, 1, self._loop.time(), future))
            return future
        if not self._config.batching:
            metadata = encoder.metadata(0)
            if self._config.empty_deletes:
                metadata.uncompressed_size = len(payload)
            describe(metadata, key, ordering_key, properties, event_time_ms, has_value=has_value)
            encoder.check_size("message", metadata.ByteSize())
            metadata.sequence_id = self._ids.assign(sequence_id, 1)
            future = self._loop.create_future()
            self._enqueue(encoder.message(metadata, payload, future))
            return future
        header_bytes = 0
        if sequence_id is not None:
            self._check_ids_are_kept()
        if is_bare:
            header = SingleMessageMetadata(sequence_id=self._ids.assign(sequence_id, 1))
        else:
            if sequence_id is not None:
                check_integer("sequence_id", sequence_id, 0)
            first = self._ids.next if sequence_id is None else sequence_id
            header = SingleMessageMetadata(sequence_id=first)
            describe(header, key, ordering_key, properties, event_time_ms, has_value=has_value)
            header_bytes = self._check_header(header, payload)
            self._ids.assign(sequence_id, 1)
        batch = self._batch
        if not batch.has_room_for(len(payload) + header_bytes):
            self._close_batch()
        future = self._loop.create_future()
        if not batch.payloads:
            batch.created_s = self._loop.time()
            batch.timer = self._loop.call_later(self._config.batch_max_delay_ms / 1000, self._close_batch)
        batch.add(header, payload, future, header_bytes)
        if batch.is_full:
            self._close_batch()
        return future

    def _metadata_alone(self, deliver_at_ms: int, deliver_after: timedelta | None) -> MessageMetadata:
        """Return the metadata of an unbatched message, including its delivery time, if any."""
        if deliver_after is not None:
            return delayed(due_ms(deliver_after, deliver_at_ms, self._clock))
        return delayed(deliver_at_ms) if deliver_at_ms else MessageMetadata()

    def send_entry(self, entry: OutgoingEntry | Sequence[bytes]) -> asyncio.Future[MessageId]:
        """Send a whole entry and return the future of its id (``batch_index`` -1).

        Never waits: `await ready()` first to stay within the limits.

        Args:
            entry: the result of `encode_entry`, or payloads, which are encoded with the producer's compression.

        Raises: same errors as `send_nowait`.
        """
        if not isinstance(entry, OutgoingEntry):
            entry = encode_entry(entry, compression=self._config.compression)
        self._check_room()
        self._encoder.check_size("entry", len(entry.body))
        if self._batch.payloads:
            self._close_batch()
        highest = entry.highest_sequence_id
        if highest is None or entry.sequence_id is None:
            first = self._ids.assign(entry.sequence_id, entry.num_messages)
        else:
            first = self._ids.assign(entry.sequence_id, highest - entry.sequence_id + 1)
        future: asyncio.Future[MessageId] = self._loop.create_future()
        self._enqueue(self._encoder.entry(entry, first, future))
        return future

    def send_sealed(self, payload: bytes, sequence_id: int, num_messages: int) -> asyncio.Future[MessageId]:
        """Send a payload section from `seal_entry` and return the future of its id (``batch_index`` -1).

        All messages of the entry share one sequence id. Never waits, like `send_entry`.

        Raises:
            InvalidConfig: the producer requires encryption, but the entry was sealed without it.
            MagnetarError: see `send_nowait`.
        """
        encryption = self._encoder.encryption
        if encryption is not None and not encryption.may_send_clear and not is_encrypted(payload):
            raise errors.InvalidConfig(
                f"entry is not encrypted, but producer {self.name} requires encryption: pass encryption to seal_entry,"
                " or use send_entry"
            )
        self._check_room()
        self._encoder.check_size("entry", len(payload))
        if self._batch.payloads:
            self._close_batch()
        self._ids.assign(sequence_id, 1)
        head = send_frame_head(self._id, sequence_id, sequence_id, num_messages, False, len(payload))
        future: asyncio.Future[MessageId] = self._loop.create_future()
        self._enqueue(PendingSend(sequence_id, sequence_id, head, payload, num_messages, self._loop.time(), future))
        return future

    def send_alone(
        self, metadata: MessageMetadata, payload: bytes, sequence_id: int | None = None
    ) -> asyncio.Future[MessageId]:
        """Send a message unbatched, with the given metadata; return the future of its id.

        Never waits, like `send_entry`. The producer's name, publish time and sequence id are filled in.

        Raises: same errors as `send_nowait`.
        """
        self._check_room()
        metadata.MergeFrom(self._encoder.metadata(0))
        self._encoder.check_size("message", metadata.ByteSize())
        if self._batch.payloads:
            self._close_batch()
        metadata.sequence_id = self._ids.assign(sequence_id, 1)
        future: asyncio.Future[MessageId] = self._loop.create_future()
        self._enqueue(self._encoder.message(metadata, payload, future))
        return future

    async def flush(self) -> None:
        """Send the open batch and wait until all previously sent messages are stored.

        Cancellation: safe.

        Raises:
            MagnetarError: the last of these messages was not stored.
        """
        self._check_open()
        self._close_batch()
        tail = self._pending.tail
        if tail is None:
            return
        if tail.flushed is None:
            tail.flushed = self._loop.create_future()
        await asyncio.shield(tail.flushed)

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise errors.ClosedError(f"producer {self.name} of {self.topic} is closed")

    def _check_room(self) -> None:
        if self._error is not None or self._is_closed:
            self._check_open()
        if self._admission.room <= 0:
            raise errors.QueueFull(
                f"{self.pending_messages} messages ({self._pending.bytes + self._batch.bytes} bytes) of producer"
                f" {self.name} are pending, the limits are max_pending_messages={self._config.max_pending_messages} and"
                f" max_pending_bytes={self._config.max_pending_bytes}{self._admission.others}: await ready() or set"
                " block_if_queue_full"
            )

    def _check_header(self, header: SingleMessageMetadata, payload: bytes) -> int:
        """Return the size of a message's key and properties in its batch; raise if the message is too large."""
        size = 0
        if header.properties or header.HasField("ordering_key"):
            header.payload_size = len(payload)
            size = header.ByteSize()
        elif header.partition_key:
            size = len(header.partition_key)
        encoder = self._encoder
        if size + len(payload) > encoder.max_message_bytes:
            encoder.check_size("message", size + (0 if encoder.compression else len(payload)))
        return size

    def _check_ids_are_kept(self) -> None:
        if self._config.batching_type == "KeyBased":
            raise errors.InvalidConfig(
                "sequence_id is not supported with batching_type 'KeyBased': use 'Default', or batching=False"
            )

    def _hurry(self) -> None:
        """Send the open batch once nothing is in flight, without its delay, because a caller is waiting."""
        batch = self._batch
        if batch.payloads and not batch.is_awaited:
            batch.is_awaited = True
            self._close_awaited_soon()

    def _close_awaited_soon(self) -> None:
        """Send an awaited batch at the end of the loop iteration, together with other messages of that iteration."""
        if not self._pending:
            self._loop.call_soon(self._close_awaited)

    def _close_awaited(self) -> None:
        # If a batch filled up meanwhile, it is in flight, and later messages wait for its receipt.
        if self._batch.is_awaited and not self._pending:
            self._close_batch()

    def _close_batch(self) -> None:
        """Send the content of the open batch."""
        batch = self._batch
        batch.stop_timer()
        if not batch.payloads:
            return
        if self._config.batching_type == "Default":
            self._send_batch(batch)
            return
        for part in split_by_key(batch):
            self._send_batch(part)

    def _send_batch(self, batch: OpenBatch) -> None:
        try:
            send = self._encoder.batch(batch)
        except Exception as error:  # noqa: BLE001  this may run in a timer, and waiting callers must get the error
            why = error if isinstance(error, MagnetarError) else MagnetarError(f"cannot encode a batch: {error!r}")
            fail_all(batch.take_futures(), why)
            return
        send.created_s = batch.created_s
        send.futures = batch.take_futures()
        self._enqueue(send)

    def _enqueue(self, send: PendingSend) -> None:
        self._pending.append(send)
        if self._send_timer is None and self._config.send_timeout_ms:
            self._send_timer = self._loop.call_later(self._config.send_timeout_ms / 1000, self._check_timeout)
        if self._is_attached and self._connection is not None:
            self._connection.send(send.head, send.payload)

    @property
    def schema_version(self) -> bytes:
        """Version of the producer's schema, assigned by the broker on attachment; empty without a schema."""
        return self._encoder.schema_version

    @property
    def counts(self) -> ProducerCounts | None:
        """The counters, or None if disabled."""
        return self._pending.counts if isinstance(self._pending, ObservedQueue) else None

    def statistics(self) -> ProducerStatistics:
        """Return the producer's statistics.

        Raises:
            InvalidConfig: the client does not collect statistics.
        """
        counts = self.counts
        if counts is None:
            raise statistics_refusal()
        return counts.statistics(self.pending_messages)

    # -- results --------------------------------------------------------------------------------------------------

    def handle_receipt(self, receipt: pb.CommandSendReceipt) -> None:
        """Handle a send receipt (called by the connection)."""
        send = self._pending.take(receipt.sequence_id)
        if send is not None:
            if send.last_sequence_id > self.last_sequence_id:
                self.last_sequence_id = send.last_sequence_id
            position = receipt.message_id
            send.complete(signed_64(position.ledgerId), signed_64(position.entryId), self._partition)
            if self._admission.waiting:
                self._admission.admit()
            if self._batch.is_awaited:
                self._close_awaited_soon()
        elif self._pending.judge(receipt.sequence_id) is Verdict.AHEAD:
            self._resend_all(f"receipt {receipt.sequence_id} is ahead of the oldest pending entry")
        else:
            log.debug("%s: ignored receipt %d: no matching pending entry", self.topic, receipt.sequence_id)

    def handle_send_error(self, error: pb.CommandSendError) -> None:
        """Handle a rejected entry (called by the connection)."""
        refused = errors.broker_error(error.error, error.message)
        if isinstance(refused, errors.TopicTerminated):
            self.fail(refused)
            return
        pending = self._pending
        is_head = pending.judge(error.sequence_id) is Verdict.HEAD
        head = pending.head
        if is_head and head is not None:
            is_corrupt = isinstance(refused, errors.ChecksumError) and verify_checksum(head.payload) is False
            if is_corrupt or isinstance(refused, errors.NotAllowed):
                # Resending the same bytes cannot help; later entries are not affected.
                pending.pop().fail(refused)
                self._admission.admit()
                if self._batch.is_awaited:
                    self._close_awaited_soon()
                return
        self._resend_all(f"entry {error.sequence_id} was not stored: {refused}")

    def _resend_all(self, why: str) -> None:
        """Drop the connection and resend on a new one, which is the only way to learn what the broker has received."""
        self._setback = f"; last error: {why}"
        if self._connection is not None:
            log.warning("%s: closing the connection to resend: %s", self.topic, why)
            self._connection.close(errors.ConnectionLost(why))

    def _check_timeout(self) -> None:
        self._send_timer = None
        head = self._pending.head
        if head is None:
            return
        timeout_s = self._config.send_timeout_ms / 1000
        remaining_s = head.created_s + timeout_s - self._loop.time()
        if remaining_s > 0:
            self._send_timer = self._loop.call_later(remaining_s, self._check_timeout)
            return
        where = self._connection.address.physical if self._connection is not None else "no broker"
        # Fail all pending messages, not only the oldest: storing later ones without it would break the order.
        self._fail_all(
            errors.OperationTimeout(
                f"{self.pending_messages} messages for {self.topic} were not stored within {timeout_s} s"
                f" (send_timeout_ms), connected to {where}{self._setback}"
            )
        )

    def _fail_all(self, error: MagnetarError) -> None:
        self._batch.stop_timer()
        for send in self._pending.pop_all():
            send.fail(error)
        fail_all(self._batch.take_futures(), error)
        self._admission.admit_all()

    # -- opening and closing ---------------------------------------------------------------------------------------

    def declare(self, schema: SchemaInfo | None) -> None:
        """Set the schema, which the broker checks (called by the client, before `open`)."""
        self._creation.schema = None if schema is None or schema.kind == BYTES else schema

    def encrypt(self, encryption: Encryption) -> None:
        """Enable encryption of entry bodies (called by the client, before `open`)."""
        self._encoder.encryption = encryption

    async def open(self) -> None:
        """Create the producer on the broker (called by the client)."""
        await self._attachment.open(self)

    def _ports(self, connection: Connection) -> dict[int, ProducerPort]:
        return connection.producers

    def _close_command(self) -> pb.CommandCloseProducer:
        return pb.CommandCloseProducer(producer_id=self._id)

    def _create(self, connection: Connection) -> asyncio.Future[pb.CommandProducerSuccess]:
        return connection.request(f"create producer on {self.topic}", self._creation.command(self.name))

    def _on_attached(self, connection: Connection, answer: pb.CommandProducerSuccess) -> None:
        self.name = self._ids.producer_name = answer.producer_name
        version = answer.schema_version if self._creation.schema is not None else b""
        before = self._encoder.schema_version
        self._encoder.attached(self.name, connection.max_message_bytes, version)
        if before and version != before:
            renew_versions(self._pending, self._id, before, version)
        if answer.HasField("topic_epoch"):
            self._creation.topic_epoch = answer.topic_epoch
        if self._ids.last >= 0:
            pass  # a reconnection: keep the sequence ids in use
        elif self._config.initial_sequence_id is not None:
            self._ids.next = self._config.initial_sequence_id
        else:
            self.last_sequence_id = answer.last_sequence_id
            self._ids.next = answer.last_sequence_id + 1
        for send in self._pending:
            connection.send(send.head, send.payload)

    def _on_detached(self, connection: Connection, reason: MagnetarError) -> None:
        if not self._is_closed:
            log.info("%s: producer %s was detached: %s", self.topic, self.name, reason)
            self._attachment.reopen(self)

    def fail(self, error: MagnetarError) -> None:
        """Fail all pending and later messages (called by its attachment)."""
        self._error = error
        self._fail_all(error)

    async def close(self) -> None:
        """Send the open batch, wait until it is stored, and close; without a connection, pending messages fail.

        Cancellation: the producer is closed nevertheless.
        """
        if self._is_closed:
            return
        self._close_batch()
        self._is_closed = True
        try:
            await self._attachment.close()
            connection = self._connection
            if connection is not None and self._is_attached:
                # The broker answers after all receipts, when everything sent before is stored.
                await connection.request(f"close producer of {self.topic}", self._close_command())
        except MagnetarError as error:
            log.debug("%s: error while closing producer %s: %s", self.topic, self.name, error)
        finally:
            self._leave()
            if self._send_timer is not None:
                self._send_timer.cancel()
            self._fail_all(
                errors.ClosedError(f"producer {self.name} of {self.topic} was closed before this was stored")
            )
