"""Message deduplication for a topic, which can be enabled and disabled while the topic is loaded.

Design: the producers' sequence ids are stored as numbers of a hidden cursor and in the entries after it. After a number
of entries, a snapshot advances the cursor and stores the changed numbers, in one journal record. When the topic is
loaded, the entries after the cursor are reread. The cursor also prevents storage from deleting entries that are not
part of a snapshot.

Entries are confirmed in journal order, so a later record is confirmed only after them. Both loading a topic and
enabling deduplication therefore first write a journal record and wait for it. Entries in flight have then been stored
or have failed, and reading up to the last entry misses none.

Source: Pulsar binary protocol, section Deduplication.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from typing import TYPE_CHECKING

from ...errors import PersistenceError, StorageError
from ...tasks import called_back, settle
from ...wire.position import Position
from .sequences import Sequence, Sequences

if TYPE_CHECKING:
    from ..storage.port import Cursor, Done
    from .producer import Producer
    from .topic import Topic

log = logging.getLogger(__name__)

DEDUPLICATION_CURSOR = "pulsar.dedup"
"""Name of the hidden durable cursor, which subscriptions must not use."""
PIECE_ENTRIES = 1000
PIECE_BYTES = 1024 * 1024


class Status(Enum):
    """Status of deduplication; the values appear in topic statistics."""

    DISABLED = "Disabled"
    RECOVERING = "Recovering"
    ENABLED = "Enabled"
    REMOVING = "Removing"
    FAILED = "Failed"


class Deduplication:
    """Message deduplication for a topic.

    Attributes:
        status: current status.
        failure: error that prevents the state set by the policies, or None.
        sequences: sequence ids by producer name; None while deduplication is disabled.
    """

    def __init__(self, topic: Topic) -> None:
        self.status = Status.DISABLED
        self.failure: StorageError | None = None
        self.sequences: Sequences | None = None
        self._topic = topic
        self._log = topic.log
        self._config = topic.broker.config
        self._now_ms = topic.broker.now_ms
        self._changing = asyncio.Lock()
        self._is_closed = False
        self._cursor: Cursor | None = None
        self._entries = 0
        self._snapshot_at_ms = 0

    def __repr__(self) -> str:
        return f"Deduplication({self._log.name}, {self.status.value}, {self.sequences!r})"

    # Producers

    def connect(self, producer: Producer) -> None:
        """Register a producer before it sends entries."""
        if self.sequences is not None:
            producer.sequence = self.sequences.connect(producer.name)

    def disconnect(self, producer: Producer) -> None:
        """Unregister a producer."""
        if producer.sequence is not None:
            producer.sequence = None
            if self.sequences is not None:
                self.sequences.disconnect(producer.name, self._now_ms())

    def check(self) -> None:
        """Raise if deduplication has failed.

        Raises:
            PersistenceError: stored entries could not be read; this will be retried.
        """
        if self.status is Status.FAILED:
            raise PersistenceError(f"deduplication of {self._log.name} failed and is being retried: {self.failure}")

    async def settled(self, name: str) -> None:
        """Wait until no entry of an earlier producer with this name is in flight.

        Cancellation: safe.
        """
        sequence = self.sequences.by_name.get(name) if self.sequences is not None else None
        if sequence is not None and sequence.under_way:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            sequence.settled.append(lambda: settle(done, None))
            await done

    def ended(self, sequence: Sequence, last: int, position: Position, *, is_stored: bool) -> None:
        """Record the outcome of a new entry."""
        sequences = self.sequences
        if sequences is None or sequences.by_name.get(sequence.name) is not sequence:
            sequence.ended(last, is_stored=is_stored)  # deduplication was disabled meanwhile, and possibly re-enabled
            return
        sequences.ended(sequence, last, is_stored=is_stored)
        if is_stored:
            self._entries += 1
            if (
                self._entries >= self._config.deduplication_snapshot_entries
                and self.status is Status.ENABLED
                and not self._is_closed
            ):
                self._snapshot(position)

    def barrier(self, done: Done) -> None:
        """Call ``done`` once all previously appended entries have been stored or have failed."""
        self._log.barrier(done)

    # Switching

    @property
    def _is_wanted(self) -> bool:
        name = self._topic.name
        return name.is_persistent and self._topic.broker.namespaces.deduplication(name)

    @property
    def is_as_wanted(self) -> bool:
        """Whether the state matches the policies."""
        if self._is_wanted:
            return self.status is Status.ENABLED
        return self.status is Status.DISABLED and DEDUPLICATION_CURSOR not in self._log.cursors

    async def adjust(self) -> None:
        """Enable or disable deduplication according to the policies; `status` and `failure` report a disk failure.

        Cancellation: safe; call again to complete the change.
        """
        async with self._changing:
            while not self.is_as_wanted and not self._log.is_deleted and not self._is_closed:
                try:
                    await (self._enable() if self._is_wanted else self._disable())
                except StorageError as error:
                    self._detach()
                    self.status, self.failure = Status.FAILED, error
                    log.error("deduplication of %s failed: %s", self._log.name, error)
                    return
                self.failure = None

    async def _enable(self) -> None:
        self.status = Status.RECOVERING
        config = self._config
        inactive_ms = int(config.deduplication_inactivity_s * 1000)
        self.sequences = Sequences(config.deduplication_max_producers, inactive_ms)
        known = self._log.cursors.get(DEDUPLICATION_CURSOR)
        if known is not None:
            self.sequences.restore(known.numbers, self._now_ms())
        for producer in self._topic.producers.values():
            producer.sequence = self.sequences.connect(producer.name)
        try:
            await called_back(self._open_cursor)
        except StorageError:
            if known is None:
                self._log.remove_cursor(DEDUPLICATION_CURSOR)
            raise
        self._cursor = self._log.cursors[DEDUPLICATION_CURSOR]
        # An entry that was in flight when the topic was unloaded may have moved the cursor meanwhile.
        self.sequences.restore(self._cursor.numbers, self._now_ms())
        # Numbers only increase, so it is safe to process entries that are part of a snapshot.
        await self._replay(self._cursor.mark_delete)
        self.status = Status.ENABLED

    def _open_cursor(self, done: Done) -> None:
        # If the cursor exists, this only waits for all earlier records.
        self._log.open_cursor(DEDUPLICATION_CURSOR, self._log.last_confirmed, None, done, is_internal=True)

    async def _replay(self, after: Position) -> None:
        assert self.sequences is not None
        end, position, count = self._log.last_confirmed, self._log.next_position(after), 0
        while position <= end:
            entries = await self._log.load(position, PIECE_ENTRIES, PIECE_BYTES)
            if not entries:
                break
            now_ms = self._now_ms()
            for entry in entries:
                self.sequences.replay(entry.payload, now_ms)
            count += len(entries)
            position = self._log.next_position(entries[-1].position)
            await asyncio.sleep(0)
        self._snapshot_at_ms = self._now_ms()
        self._entries = count

    async def _disable(self) -> None:
        self.status = Status.REMOVING
        self._detach()
        await self._log.delete_cursor(DEDUPLICATION_CURSOR, is_internal=True)
        self.status = Status.DISABLED

    def _detach(self) -> None:
        self._cursor = None
        self.sequences = None
        for producer in self._topic.producers.values():
            producer.sequence = None

    def close(self) -> None:
        """Stop changing the cursor, because the topic is unloaded and its next incarnation owns the cursor."""
        self._is_closed = True

    # Snapshots

    def tick(self) -> None:
        """Forget producers that have been inactive for too long, and take a snapshot if due; called periodically."""
        if self.status is not Status.ENABLED or self.sequences is None or self._cursor is None or self._is_closed:
            return
        now_ms = self._now_ms()
        self.sequences.purge(now_ms)
        end = self._log.last_confirmed
        is_behind = self.sequences.has_changes or self._cursor.mark_delete < end
        snapshot_ms = int(self._topic.policies.snapshot_age_s * 1000)
        if is_behind and now_ms - self._snapshot_at_ms >= snapshot_ms:
            self._snapshot(end)

    def _snapshot(self, position: Position) -> None:
        assert self.sequences is not None
        assert self._cursor is not None
        self._entries = 0
        self._snapshot_at_ms = self._now_ms()
        numbers, forgotten = self.sequences.take_changes()
        self._cursor.note(position, numbers, forgotten)
