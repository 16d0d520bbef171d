"""Receives the entries of one topic (or one partition of it) for a subscription.

Design: received entries are queued undecoded; `poll_entry` returns an entry, `receive` a message. Permits are returned
to the broker when messages leave the queue, not when they are acknowledged. Each new connection starts with an empty
queue: the broker redelivers everything unacknowledged, so keeping the old queue would cause duplicates.

This module contains the public API and handles reconnections. `Arrivals` opens received entries, `ReceiveQueue`
queues them, `ChunkedMessages` joins chunks, and `Acknowledger` sends and resends acknowledgements.

Source: Pulsar binary protocol, section Consumer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...errors import ClosedError, CryptoError, InvalidConfig, MagnetarError
from ...wire import pulsar_api_pb2 as pb
from ...wire.message_id import EARLIEST, LATEST, MessageId
from ...wire.runs import MessageRow
from ...wire.topic_name import TopicName
from ..checks import check_integer, check_message_id
from ..config import ConsumerConfig
from ..connections.attachment import Attachable, Attachment
from ..connections.connection import Connection
from ..receiving import Receiving
from ..schemas.schema import SchemaInfo
from ..statistics import ConsumerStatistics, statistics_refusal
from .ack_tracker import bits_of
from .acknowledger import Acknowledger
from .arrivals import Arrivals
from .chunked_messages import ChunkedMessages
from .command import ack_damaged, ask_last, redeliver, seek, subscribe_command
from .encrypted_entries import EncryptedEntries
from .entry_claims import claim_entries
from .no_acks import NoAcks
from .receive_queue import ReceiveQueue
from .received import DamagedEntry, EntryKey, Message, ReceivedEntry, given_id, position_of
from .start import Resumption, StartPosition
from .waiters import Waiters, next_message, timeout_in_s

if TYPE_CHECKING:
    from ..encryption.decryption import Decryption

log = logging.getLogger(__name__)

MAX_REDELIVER_IDS = 1000
"""Maximum number of positions in one REDELIVER command."""


class Consumer(Attachable, Receiving[Message]):
    """A consumer of one topic; created by `AsyncClient.subscribe` and used on its event loop.

    Attributes:
        topic: full name.
        subscription: subscription name.
        name: consumer name.
        clock: wall time in seconds, for late chunks.
        creates_topic: whether the broker may create the topic.
        is_active: whether the broker currently delivers to this consumer (with Failover, only one is active).
        has_reached_end: whether the topic is terminated and all messages were delivered.
    """

    _closed_at_once = "closed the consumer immediately"

    def __init__(
        self,
        topic: TopicName,
        subscription: str,
        consumer_id: int,
        config: ConsumerConfig,
        attachment: Attachment,
        start: StartPosition | None = None,
    ):
        self.topic = topic.text
        self.subscription = subscription
        self.name = config.name or ""
        self.is_active = False
        self.has_reached_end = False
        self._partition = topic.partition
        self._id = consumer_id
        self._config = config
        self._attachment = attachment
        self._is_closed = False
        self._error: MagnetarError | None = None
        # A non-persistent topic drops messages without permits, so withholding permits by size would lose messages.
        queue_bytes = config.receiver_queue_bytes if topic.is_persistent else 0
        self._queue = ReceiveQueue(config.receiver_queue_size, queue_bytes)
        self.clock: Callable[[], float] = time.time
        self.creates_topic = True
        self._waiting = Waiters()
        self._waiting_for_broker = Waiters()
        acknowledge = Acknowledger if topic.is_persistent else NoAcks
        self._acks = acknowledge(consumer_id, config, self.topic, self._redeliver)
        self._chunked = ChunkedMessages(self.topic, config, self._acks, lambda: self.clock())
        self._queue.join = self._chunked.join
        self._joins_chunks = config.joins_chunks
        self._resumption = Resumption(start if topic.is_persistent else None, self._acks)
        self._arrivals = Arrivals(topic, self._queue, self._acks, self._resumption, self._release, self._name_damage)
        self._queue.encrypted = self._encrypted_entries()
        self._halt: CryptoError | None = None
        self._is_rewinding = config.type in ("Exclusive", "Failover")
        self.on_arrival: Callable[[], None] | None = None
        self._schema: SchemaInfo | None = None
        self._on_attach: Callable[[], None] | None = None

    def _encrypted_entries(self) -> EncryptedEntries | None:
        """Return the decryption filter, or None if encrypted entries are returned as is, so that reading them fails."""
        config = self._config
        as_they_are = config.crypto_failure_action == "CONSUME"
        decryption: Decryption | None = None
        if config.crypto_key_reader is not None or as_they_are:
            from ..encryption.decryption import Decryption  # loads a library, so only if needed

            decryption = Decryption(config.crypto_key_reader)
        elif config.on_undecryptable is None:
            return None
        take_as_is = self._take_undecrypted if as_they_are else None
        return EncryptedEntries(decryption, take_as_is, self._refuse_encrypted, self._announce)

    def __repr__(self) -> str:
        return f"Consumer(topic={self.topic!r}, subscription={self.subscription!r}, queued={self.queued_messages})"

    # -- receiving ------------------------------------------------------------------------------------------------

    def poll_entry(self) -> ReceivedEntry | None:
        """Return the next entry if one is queued.

        Raises:
            ClosedError: the consumer is closed.
            BrokerError: the broker permanently rejected the consumer.
            CryptoError: ``on_undecryptable`` stopped the consumer at an entry.
        """
        if self._error is not None or self._is_closed or self._halt is not None:
            self._check_readable()
        while (entry := self._queue.pop_entry()) is not None:
            if self._resumption.start is not None:
                self._resumption.start = StartPosition(entry.message_id, inclusive=False)
            if permits := self._queue.permits.release(entry.permits):
                self._flow(permits)
            tracker = self._acks.tracker
            if entry.position <= tracker.highest and not tracker.mask(entry):
                continue
            if not self._joins_chunks or not entry.is_chunk:
                return entry
            if (whole := self._chunked.join(entry)) is not None:
                return whole
        if self._halt is not None:
            raise self._halt
        self._demand()
        return None

    async def receive_entry(self) -> ReceivedEntry:
        """Return the next entry, waiting for it.

        Cancellation: safe, nothing is lost.

        Raises: same errors as `poll_entry`.
        """
        while (entry := self.poll_entry()) is None:
            await self._waiting.wait()
        return entry

    def poll(self) -> Message | None:
        """Return the next message if one is queued; raises the same errors as `poll_entry`."""
        if self._error is not None or self._is_closed or self._halt is not None:
            self._check_readable()
        message = self._queue.pop_message(self._release, self.discard)
        if message is None:
            if self._halt is not None:
                raise self._halt
            self._demand()
            return None
        if self._resumption.start is not None:
            self._resumption.start = StartPosition(message.message_id, inclusive=False)
        self._release(1)
        return message

    async def receive(self, timeout_s: float | None = None, *, timeout_millis: float | None = None) -> Message:
        """Return the next message, waiting for it.

        Cancellation: safe, nothing is lost.

        Args:
            timeout_s: timeout in seconds; None waits indefinitely.
            timeout_millis: timeout in milliseconds, as in Pulsar's clients; mutually exclusive with ``timeout_s``.

        Raises:
            OperationTimeout: no message arrived in time; a later call returns it.
            MagnetarError: see `poll_entry`.
        """
        if timeout_millis is not None:
            timeout_s = timeout_in_s(timeout_s, timeout_millis)
        message = self.poll()
        return (
            message if message is not None else await next_message(self.topic, timeout_s, self._waiting.wait, self.poll)
        )

    async def arrival(self) -> None:
        """Wait until a message may be available, or the consumer is closed or failed.

        Cancellation: safe.
        """
        if not self._queue and not self._is_closed and self._error is None and self._halt is None:
            await self._waiting.wait()

    @property
    def queued_messages(self) -> int:
        """Number of messages that can be received without waiting."""
        return self._queue.num_messages

    @property
    def has_opened(self) -> bool:
        """Whether messages of the last opened entry remain for `poll`."""
        return self._queue.has_opened

    def handle_message(self, message: pb.CommandMessage, payload: bytes) -> None:
        """Handle an entry (called by the connection)."""
        if self._arrivals.take(message, payload):
            self._announce()

    def handle_messages(self, rows: list[MessageRow]) -> None:
        """Handle entries that arrived together, in order (called by the connection)."""
        if self._arrivals.take_rows(rows):
            self._announce()

    def _announce(self) -> None:
        """Wake waiting callers after new entries have arrived."""
        if self._waiting:
            self._waiting.wake()
        if self.on_arrival is not None:
            self.on_arrival()

    def discard(self, entry: ReceivedEntry, error: DamagedEntry) -> None:
        """Acknowledge an unreadable entry, which would be redelivered forever, and report the damage to the broker.

        If ``crypto_failure_action`` is FAIL, an encrypted entry is redelivered later instead.

        Intended for callers of `receive_entry` and `poll_entry` when reading the entry raised `DamagedEntry`.
        """
        self._name_damage(entry.message_id[:2], error)

    def _name_damage(self, position: EntryKey, error: DamagedEntry) -> None:
        if error.validation_error == pb.CommandAck.DecryptionError:
            self._name_undecryptable(position, error)
            return
        log.error("%s: dropped damaged entry %d:%d: %s", self.topic, *position, error)
        if self._connection is not None:
            self._connection.send_command(ack_damaged(self._id, position, error.validation_error))

    def _name_undecryptable(self, position: EntryKey, error: DamagedEntry) -> None:
        config, pause_s = self._config, None
        is_kept = config.crypto_failure_action == "FAIL"
        if config.on_undecryptable is not None:
            pause_s = config.on_undecryptable(self.topic, position, str(error))
            if is_kept and pause_s is None:
                self._halt = CryptoError(f"{self.topic}: {error}")
                self._queue.clear()
                return
        else:
            log.error("%s: cannot deliver entry %d:%d: %s", self.topic, *position, error)
        if is_kept:
            self._acks.negative(position, pause_s)
        elif self._connection is not None:
            self._connection.send_command(ack_damaged(self._id, position, error.validation_error))

    def _refuse_encrypted(self, entry: ReceivedEntry, error: DamagedEntry) -> None:
        self._name_undecryptable(entry.position, error)
        self._release(error.permits)

    def _take_undecrypted(self, entry: ReceivedEntry, error: DamagedEntry) -> None:
        log.warning("%s: %s; delivering it encrypted", self.topic, error)

    def _release(self, count: int) -> None:
        if permits := self._queue.permits.release(count):
            self._flow(permits)

    def _flow(self, permits: int) -> None:
        if self._is_attached and self._connection is not None:
            self._connection.send_command(pb.CommandFlow(consumer_id=self._id, messagePermits=permits))

    def _demand(self) -> None:
        if self._is_attached and self._connection is not None:
            permits = self._queue.permits.demand()
            if permits:
                self._connection.send_command(pb.CommandFlow(consumer_id=self._id, messagePermits=permits))

    # -- acknowledging --------------------------------------------------------------------------------------------

    def ack(self, message: Message | MessageId) -> asyncio.Future[None]:
        """Acknowledge one message, or a whole entry if the id has no batch index.

        Returns: a future that completes immediately or, with ``ack_receipts``, when the broker has confirmed it.
        """
        self._check_open()
        return self._acks.message(given_id(message))

    def ack_entry(self, entry: ReceivedEntry | MessageId) -> asyncio.Future[None]:
        """Acknowledge a whole entry; see `ack` for the result."""
        self._check_open()
        return self._acks.entry(position_of(entry))

    def ack_entries(self, entries: Sequence[ReceivedEntry | MessageId]) -> asyncio.Future[None]:
        """Acknowledge whole entries in one frame that is sent immediately; see `ack` for the result."""
        self._check_open()
        return self._acks.entries_now([position_of(entry) for entry in entries])

    def claim_entries(self, entries: Sequence[ReceivedEntry]) -> asyncio.Future[list[ReceivedEntry]]:
        """Acknowledge whole entries and return a future of those that now belong to this consumer alone.

        Entries are omitted if their receipt does not arrive on the connection that delivered them, or arrives after
        another consumer became active. Omitted entries are redelivered if the broker still has them.
        """
        self._check_open()
        return claim_entries(self.topic, entries, self._acks, lambda: self._is_closed)

    def ack_batch_indexes(self, entry: ReceivedEntry | MessageId, still_wanted: Sequence[int]) -> asyncio.Future[None]:
        """Acknowledge all messages of an entry except those set in ``still_wanted``; see `ack` for the result.

        Args:
            entry: the entry.
            still_wanted: an ack set (`magnetar.wire.ack_set`).
        """
        self._check_open()
        return self._acks.all_but(position_of(entry), bits_of(still_wanted))

    def ack_cumulative(self, message: Message | ReceivedEntry | MessageId) -> asyncio.Future[None]:
        """Acknowledge everything up to and including a message or entry; see `ack` for the result.

        Raises:
            InvalidConfig: the subscription is shared, so other consumers may still be processing earlier messages.
        """
        self._check_open()
        if not self._is_rewinding:
            raise InvalidConfig(
                f"{self._config.type} subscription {self.subscription!r} does not support cumulative acknowledgement"
            )
        return self._acks.up_to(given_id(message))

    def negative_ack(self, message: Message | ReceivedEntry | MessageId) -> None:
        """Request redelivery of a message after ``negative_ack_delay_ms``.

        The broker redelivers the whole entry, except messages acknowledged meanwhile. On an Exclusive or Failover
        subscription, it redelivers all unacknowledged messages.
        """
        self._check_open()
        self._acks.negative(given_id(message)[:2])

    async def reconsume_later(
        self, message: Message, delay_ms: int = 0, properties: Mapping[str, str] | None = None
    ) -> None:
        """Send a message to the retry letter topic, from which it is redelivered, and acknowledge it.

        After ``max_redeliver_count`` redeliveries, the message is sent to the dead letter topic instead.

        Args:
            message: the received message.
            delay_ms: delay before redelivery.
            properties: additional properties.

        Cancellation: the message may be in the retry letter topic and also be redelivered from its own topic.

        Raises:
            InvalidConfig: ``retry_enable`` is not set.
            MagnetarError: the message was not stored, and is not acknowledged.
        """
        raise InvalidConfig(
            f"consumer of {self.topic} has no retry letter topic: subscribe with ConsumerConfig(retry_enable=True)"
        )

    def _redeliver(self, due: list[EntryKey]) -> None:
        """Request redelivery of entries whose negative acknowledgement is due."""
        connection = self._connection
        if not self._is_attached or connection is None:
            return  # the next connection redelivers everything unacknowledged
        if self._is_rewinding:
            self.redeliver_unacknowledged()
            return
        self._acks.flush()  # first, so that the broker omits acknowledged messages
        if self._acks.tracker.companions:
            due = self._acks.tracker.with_companions(due)
        for first in range(0, len(due), MAX_REDELIVER_IDS):
            connection.send_command(redeliver(self._id, due[first : first + MAX_REDELIVER_IDS], None))

    def redeliver_unacknowledged(self) -> None:
        """Request redelivery of all unacknowledged messages, which also happens on each new connection."""
        self._check_open()
        connection = self._connection
        if not self._is_attached or connection is None:
            return
        self._acks.flush()
        permits = self._queue.clear()
        self._chunked.forget()
        if self._is_rewinding:
            self._arrivals.epoch += 1
        connection.send_command(redeliver(self._id, (), self._arrivals.epoch if self._is_rewinding else None))
        self._release(permits)

    async def flush_acks(self) -> None:
        """Send all pending acknowledgements; with ``ack_receipts``, wait until they are confirmed.

        Cancellation: safe.
        """
        self._check_open()
        await self._acks.confirmed()

    def statistics(self) -> ConsumerStatistics:
        """Return the consumer's statistics.

        Raises:
            InvalidConfig: the client does not collect statistics.
        """
        raise statistics_refusal()

    # -- moving ---------------------------------------------------------------------------------------------------

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Move the subscription: the next message will be the first one after ``target``.

        Args:
            target: a message id, EARLIEST, LATEST, or a publish time in milliseconds: the first message published at or
                after it is next.
            inclusive: with a message id, start at that message instead of after it.

        Cancellation: the subscription may have moved.

        Raises:
            BrokerError, OperationTimeout, ConnectionLost: the subscription may not have moved.
        """
        begin: StartPosition | int
        skip: StartPosition | None = None
        if isinstance(target, MessageId):
            check_message_id(target)
            begin = StartPosition(target, inclusive)
            skip = None if target in (EARLIEST, LATEST) else begin
        else:
            check_integer("publish time to seek to", target, 0)
            begin = target
        connection = await self._attached()
        self._arrivals.is_seeking = True
        permits = self._queue.clear()
        self._chunked.forget()
        self._acks.clear()
        try:
            await connection.request(f"seek {self.topic} to {target}", seek(self._id, begin))
            self._resumption.sought(target, skip)
        finally:
            self._arrivals.is_seeking = False
            self._queue.clear()
            if self._connection is None and not self._is_closed:
                self._attachment.reopen(self, at_once=True)
            else:
                self._release(permits)
        await self._attached()
        before = self._resumption.start
        if before is not None and not isinstance(target, MessageId):
            _, mark_delete = await self.last_and_mark_delete()
            if self._resumption.start is before:  # nothing was received meanwhile
                self._resumption.stands_at(mark_delete)

    async def last_message_id(self) -> MessageId:
        """Return the id of the newest message of the topic; ``entry_id`` is -1 if the topic is empty.

        Cancellation: safe.
        """
        return (await self.last_and_mark_delete())[0]

    async def last_and_mark_delete(self) -> tuple[MessageId, MessageId | None]:
        """Return the newest message's id, and the subscription's mark-delete position if the broker sends it.

        Cancellation: safe.
        """
        return await ask_last(await self._attached(), self._id, self.topic, self._partition)

    async def unsubscribe(self) -> None:
        """Delete the subscription and close the consumer.

        Cancellation: the subscription may be deleted.

        Raises:
            MetadataError: other consumers are connected.
        """
        connection = await self._attached()
        self._acks.flush()
        unsubscribe = pb.CommandUnsubscribe(consumer_id=self._id)
        await connection.request(f"unsubscribe {self.subscription} of {self.topic}", unsubscribe)
        await self._end()

    # -- opening and closing ---------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether the application has closed the consumer."""
        return self._is_closed

    @property
    def failure(self) -> MagnetarError | None:
        """The error with which the broker permanently rejected the consumer, or None."""
        return self._error

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise ClosedError(f"consumer of {self.topic}, subscription {self.subscription!r}, is closed")

    def _check_readable(self) -> None:
        self._check_open()
        if self._halt is not None:
            raise self._halt

    async def _attached(self) -> Connection:
        """Wait until the consumer is attached to a connection, and return the connection."""
        while True:
            self._check_open()
            if self._is_attached and self._connection is not None:
                return self._connection
            await self._waiting_for_broker.wait()

    def declare(self, schema: SchemaInfo | None, on_attach: Callable[[], None]) -> None:
        """Set the schema that the broker checks against the topic (called by the client, before `open`).

        Args:
            schema: the schema, or None.
            on_attach: called each time the consumer attaches, before it receives anything.
        """
        self._schema = schema
        self._on_attach = on_attach

    async def open(self) -> None:
        """Subscribe (called by the client)."""
        await self._attachment.open(self)

    async def _create(self, connection: Connection) -> None:
        command = self._subscription()
        if command.schema.type == pb.Schema.AutoConsume and not connection.takes_auto_consume:
            command.ClearField("schema")
        await connection.request(f"subscribe {self.subscription} to {self.topic}", command)
        if self._resumption.is_latest:
            # "Latest" must mean the same position after a reconnection, so look up its message now.
            self._resumption.stands_at((await ask_last(connection, self._id, self.topic, self._partition))[1])

    def _on_attached(self, connection: Connection, answer: None) -> None:
        self._arrivals.max_message_bytes = connection.max_message_bytes
        if self._on_attach is not None:
            self._on_attach()
        self._acks.attach(connection)
        permits = self._queue.permits.restart()
        if permits:
            connection.send_command(pb.CommandFlow(consumer_id=self._id, messagePermits=permits))
        elif self._waiting:
            self._demand()
        if self._config.type != "Failover":
            self._set_active(True)
        self._waiting_for_broker.wake()

    def _subscription(self) -> pb.CommandSubscribe:
        start = self._resumption.start
        command = subscribe_command(self._config, self.topic, self.subscription, start and start.message_id)
        command.consumer_id = self._id
        if not self.creates_topic:
            command.force_topic_creation = False
        if self._schema is not None and (said := self._schema.to_proto()) is not None:
            command.schema.CopyFrom(said)
        if self._is_rewinding:
            command.consumer_epoch = self._arrivals.epoch
        return command

    def handle_active_change(self, is_active: bool) -> None:
        """Handle a change of the active consumer (called by the connection)."""
        if not is_active and self.is_active:
            # The queued entries are redelivered to another consumer, starting with the first unacknowledged one. If
            # they were kept until this consumer is active again, they would be delivered out of order.
            self._release(self._queue.clear())
            self._chunked.forget()
            self._acks.lose_claims("another consumer is the active one")
        self._set_active(is_active)

    def _set_active(self, is_active: bool) -> None:
        if is_active == self.is_active:
            return
        self.is_active = is_active
        if self._config.on_active_change is not None:
            try:
                self._config.on_active_change(is_active)
            except Exception:
                log.exception("%s: on_active_change(%s) raised", self.topic, is_active)

    def handle_end_of_topic(self) -> None:
        """Handle the end of a terminated topic (called by the connection)."""
        self.has_reached_end = True

    def _on_detached(self, connection: Connection, reason: MagnetarError) -> None:
        self._acks.detach()
        self._resumption.detached(self._queue.next_position())
        self._queue.clear()
        self._chunked.forget()
        self._set_active(False)
        if not self._is_closed and not self._arrivals.is_seeking:
            log.info("%s: consumer of subscription %s was detached: %s", self.topic, self.subscription, reason)
            self._attachment.reopen(self)

    def fail(self, error: MagnetarError) -> None:
        """Fail the consumer: raise ``error`` from all later calls (called by its attachment)."""
        self._error = error
        self._acks.close(error)
        self._waiting.wake()
        self._waiting_for_broker.wake()
        if self.on_arrival is not None:
            self.on_arrival()

    async def close(self) -> None:
        """Send pending acknowledgements and close; queued entries are redelivered to another consumer.

        Cancellation: the consumer is closed nevertheless.
        """
        if self._is_closed:
            return
        try:
            if self._is_attached:
                await self._acks.confirmed()
            connection = self._connection  # read after the wait, as it may have changed
            if connection is not None and self._is_attached:
                await connection.request(f"close consumer of {self.topic}", self._close_command())
        except MagnetarError as error:
            log.debug("%s: error while closing a consumer of subscription %s: %s", self.topic, self.subscription, error)
        finally:
            await self._end()

    async def _end(self) -> None:
        self._is_closed = True
        self._leave()
        self._acks.close(ClosedError(f"consumer of {self.topic} was closed before this was confirmed"))
        self._queue.clear()
        self._set_active(False)
        self._waiting.wake()
        self._waiting_for_broker.wake()
        if self.on_arrival is not None:
            self.on_arrival()
        await self._attachment.close()
