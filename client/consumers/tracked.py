"""A consumer that tracks delivered messages until they are acknowledged: ack timeout, dead letters, retry letters.

Design: a separate class, so that consumers without these settings do not pay for them. Whole entries are tracked, as
the protocol redelivers whole entries. An entry that has reached the redelivery limit is kept until it is acknowledged;
if another redelivery is requested, its unacknowledged messages are sent to the dead letter topic, and acknowledged once
they are stored there. An entry beyond the limit (because its consumer died) is sent there without being delivered.

Invariant: an entry is acknowledged only after all its letters are stored. If storing one fails, the entry is
redelivered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...errors import MagnetarError
from ...tasks import TaskSet
from ...wire.message_id import MessageId
from ...wire.topic_name import TopicName
from ..checks import INT64_MAX, check_integer, check_texts
from ..config import ConsumerConfig
from ..connections.attachment import Attachment
from ..connections.connection import Connection
from .ack_timeouts import AckTimeouts
from .consumer import Consumer
from .letters import Letters, OpenProducer, SchemaVersion
from .received import DamagedEntry, EntryKey, Message, ReceivedEntry, given_id, position_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Services:
    """The services that a client provides to its consumers.

    Attributes:
        open_producer: creates a producer, for letters.
        random_name: returns a random name.
        clock: wall time in seconds.
        schema_version: returns a topic's version of a message's schema, for letters.
        counts: whether consumers collect statistics.
    """

    open_producer: OpenProducer
    random_name: Callable[[], str]
    clock: Callable[[], float]
    schema_version: SchemaVersion
    counts: bool = False


class TrackedConsumer(Consumer):
    """A consumer with an ack timeout, a dead letter policy, or both."""

    def __init__(
        self,
        topic: TopicName,
        subscription: str,
        consumer_id: int,
        config: ConsumerConfig,
        attachment: Attachment,
        services: Services,
    ):
        super().__init__(topic, subscription, consumer_id, config, attachment)
        self._clock = services.clock
        self._loop = asyncio.get_running_loop()
        self._tasks = TaskSet(f"consumer of {topic.text}")
        self._suspects: dict[EntryKey, ReceivedEntry] = {}
        self._leaving: set[EntryKey] = set()
        self._moves = 0  # number of seeks
        self._letters: Letters | None = None
        policy = config.dead_letter_policy
        if policy is not None:
            name = f"{topic.text}-{subscription}-{config.name}-{services.random_name()}"
            self._letters = Letters(
                policy, topic.text, subscription, name, services.open_producer, services.schema_version
            )
        self._timeouts: AckTimeouts | None = None
        self._tick_s = config.ack_timeout_tick_ms / 1000
        self._ticking: asyncio.TimerHandle | None = None
        if config.unacked_messages_timeout_ms:
            self._timeouts = AckTimeouts(config.unacked_messages_timeout_ms / 1000, self._tick_s)

    # -- receiving ------------------------------------------------------------------------------------------------

    def poll_entry(self) -> ReceivedEntry | None:
        """Return the next entry if one is queued; see `Consumer.poll_entry`."""
        while (entry := super().poll_entry()) is not None:
            if self._is_handed_out(entry):
                return entry
        return None

    def poll(self) -> Message | None:
        """Return the next message if one is queued; see `Consumer.poll`."""
        while (message := super().poll()) is not None:
            if self._is_handed_out(message.entry):
                return message
        return None

    def _is_handed_out(self, entry: ReceivedEntry) -> bool:
        """Start tracking an entry; return whether to deliver it to the application."""
        position = entry.position
        letters = self._letters
        if letters is not None and entry.redelivery_count >= letters.max_redeliver_count:
            if position in self._leaving:
                return False
            if entry.redelivery_count > letters.max_redeliver_count:
                self._bury([entry])
                return False
            self._suspects[position] = entry
        if self._timeouts is not None:
            self._timeouts.add(position)
            if self._ticking is None:
                self._ticking = self._loop.call_later(self._tick_s, self._tick)
        return True

    def _tick(self) -> None:
        self._ticking = None
        timeouts = self._timeouts
        if timeouts is None:
            return
        due = timeouts.tick()
        if timeouts:
            self._ticking = self._loop.call_later(self._tick_s, self._tick)
        if due:
            self._is_overdue(due)

    def _is_overdue(self, due: list[EntryKey]) -> None:
        log.info("%s: requested redelivery of %d entries: acknowledgement timeout", self.topic, len(due))
        self._ask_again(due)

    # -- acknowledging --------------------------------------------------------------------------------------------

    def ack(self, message: Message | MessageId) -> asyncio.Future[None]:
        """Acknowledge one message; see `Consumer.ack`."""
        done = super().ack(message)
        self._settled([given_id(message)[:2]])
        return done

    def ack_entry(self, entry: ReceivedEntry | MessageId) -> asyncio.Future[None]:
        """Acknowledge a whole entry; see `Consumer.ack_entry`."""
        done = super().ack_entry(entry)
        self._settled([position_of(entry)])
        return done

    def ack_entries(self, entries: Sequence[ReceivedEntry | MessageId]) -> asyncio.Future[None]:
        """Acknowledge whole entries in one frame; see `Consumer.ack_entries`."""
        done = super().ack_entries(entries)
        self._settled(map(position_of, entries))
        return done

    def claim_entries(self, entries: Sequence[ReceivedEntry]) -> asyncio.Future[list[ReceivedEntry]]:
        """Acknowledge whole entries before they are processed; see `Consumer.claim_entries`."""
        claimed = super().claim_entries(entries)
        self._settled(entry.position for entry in entries)
        return claimed

    def ack_batch_indexes(self, entry: ReceivedEntry | MessageId, still_wanted: Sequence[int]) -> asyncio.Future[None]:
        """Acknowledge some messages of an entry; see `Consumer.ack_batch_indexes`."""
        done = super().ack_batch_indexes(entry, still_wanted)
        self._settled([position_of(entry)])
        return done

    def ack_cumulative(self, message: Message | ReceivedEntry | MessageId) -> asyncio.Future[None]:
        """Acknowledge everything up to a message; see `Consumer.ack_cumulative`."""
        done = super().ack_cumulative(message)
        message_id = given_id(message)
        position = message_id[:2]
        if 0 <= message_id.batch_index < message_id.batch_size - 1:
            position = (position[0], position[1] - 1)
        if self._timeouts is not None:
            self._timeouts.discard_up_to(position)
        for known in [known for known in self._suspects if known <= position]:
            del self._suspects[known]
        return done

    def negative_ack(self, message: Message | ReceivedEntry | MessageId) -> None:
        """Request redelivery of a message later; see `Consumer.negative_ack`."""
        super().negative_ack(message)
        if self._timeouts is not None:
            self._timeouts.discard(given_id(message)[:2])

    def discard(self, entry: ReceivedEntry, error: DamagedEntry) -> None:
        """Acknowledge an entry that cannot be read; see `Consumer.discard`."""
        super().discard(entry, error)
        self._forget(entry.position)

    def _settled(self, positions: Iterable[EntryKey]) -> None:
        """Stop tracking fully acknowledged entries."""
        tracker = self._acks.tracker
        for position in positions:
            if tracker.wanted(position) is None:
                self._forget(position)

    def _forget(self, position: EntryKey) -> None:
        if self._timeouts is not None:
            self._timeouts.discard(position)
        self._suspects.pop(position, None)

    def _forget_all(self) -> None:
        if self._timeouts is not None:
            self._timeouts.clear()
        self._suspects.clear()

    # -- dead letters ---------------------------------------------------------------------------------------------

    def _redeliver(self, due: list[EntryKey]) -> None:
        """Request redelivery of entries whose negative acknowledgement is due."""
        self._is_refused(due)

    def _is_refused(self, due: list[EntryKey]) -> None:
        self._ask_again(due)

    def _ask_again(self, due: list[EntryKey]) -> None:
        """Request redelivery of entries, except those that have reached the redelivery limit."""
        if self._timeouts is not None:
            for position in due:
                self._timeouts.discard(position)
        if self._suspects:
            known = [self._suspects.pop(position) for position in due if position in self._suspects]
            dead = [entry for entry in known if self._acks.tracker.mask(entry)]
            if dead:
                self._bury(dead)
                leaving = {entry.position for entry in dead}
                due = [position for position in due if position not in leaving]
        if due:
            super()._redeliver(due)

    def _bury(self, entries: Sequence[ReceivedEntry]) -> None:
        """Send the unacknowledged messages of entries to the dead letter topic, in the background."""
        self._leaving.update(entry.position for entry in entries)
        for entry in entries:
            moves = self._moves
            failed = partial(self._not_buried, entry.position, moves)
            self._tasks.start(self._bury_one(entry, moves), f"dead letters of {entry.message_id}", failed)

    def _not_buried(self, position: EntryKey, moves: int, failure: BaseException) -> None:
        log.warning(
            "%s: cannot send entry %d:%d to the dead letter topic, requesting redelivery: %s",
            self.topic, *position, failure,
            exc_info=None if isinstance(failure, MagnetarError) else failure,
        )  # fmt: skip
        if moves == self._moves and not self._is_closed:
            self._acks.negative(position)

    async def _bury_one(self, entry: ReceivedEntry, moves: int) -> None:
        letters = self._letters
        assert letters is not None
        position = entry.position
        try:
            messages = entry.messages()
            await asyncio.gather(*(letters.give_up(message) for message in messages))
        except DamagedEntry as error:
            self.discard(entry, error)
        else:
            self._gave_up(len(messages))
            if moves == self._moves and not self._is_closed:
                self._acks.entry(position)
        finally:
            self._leaving.discard(position)

    def _gave_up(self, messages: int) -> None:
        """Handle messages that were stored in the dead letter topic."""

    async def reconsume_later(
        self, message: Message, delay_ms: int = 0, properties: Mapping[str, str] | None = None
    ) -> None:
        """Send a message to the retry letter topic and acknowledge it; see `Consumer.reconsume_later`."""
        self._check_open()
        letters = self._letters
        if letters is None or not self._config.retry_enable:
            await super().reconsume_later(message, delay_ms, properties)
            return
        check_integer("delay_ms", delay_ms, 0, INT64_MAX // 2)
        if properties:
            check_texts("properties", properties)
        moves = self._moves
        await letters.reconsume(message, properties or {}, delay_ms, int(self._clock() * 1000))
        if moves == self._moves:
            await self.ack(message)

    # -- moving, opening and closing ---------------------------------------------------------------------------------

    def redeliver_unacknowledged(self) -> None:
        """Request redelivery of all unacknowledged messages; see `Consumer.redeliver_unacknowledged`."""
        super().redeliver_unacknowledged()
        self._forget_all()

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Move the subscription; see `Consumer.seek`."""
        self._moves += 1
        self._forget_all()
        await super().seek(target, inclusive=inclusive)

    def handle_active_change(self, is_active: bool) -> None:
        """Handle a change of the active consumer (called by the connection)."""
        if not is_active:
            self._forget_all()
        super().handle_active_change(is_active)

    def _on_detached(self, connection: Connection, reason: MagnetarError) -> None:
        self._forget_all()
        if self._letters is not None:
            self._letters.forget_versions()
        super()._on_detached(connection, reason)

    def fail(self, error: MagnetarError) -> None:
        """Fail the consumer: raise ``error`` from all later calls (called by its attachment)."""
        self._forget_all()
        super().fail(error)

    async def close(self) -> None:
        """Wait for letters in flight, then close; see `Consumer.close`."""
        while self._leaving and not self._is_closed and self._error is None:
            await self._tasks.idle()
        await super().close()

    async def _end(self) -> None:
        self._forget_all()
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
        await super()._end()
        await self._tasks.close()
        if self._letters is not None:
            await self._letters.close()
