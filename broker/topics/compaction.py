"""Compaction of a topic: two passes over its entries, then a switch to the new compacted view.

Design: entries are read like by any consumer that is behind, in small pieces, and processed in a thread; after each
piece the pass pauses for as long as the piece took, so that it uses at most half a core and the loop's other work goes
first. The entries cannot change during a pass: compacted views change only here, and the log keeps its ledgers during
compaction.

A failure at any point leaves the old view in place.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from ...errors import MagnetarError, NotAllowed, StorageError
from ...tasks import called_back, settle
from ...wire.position import EARLIEST, Position
from ..storage.compacted_view import COMPACTION_CURSOR, CompactedReading, pack
from ..storage.entry import StoredEntry
from ..storage.port import Done, Log
from .compaction_rules import Latest, Survivors, TooManyKeys

log = logging.getLogger(__name__)

MAX_KEYS = 200_000
"""Keys in memory at a time, about 40 MB; more keys take more passes."""
MAX_PARTS = 256
PIECE_ENTRIES = 256
PIECE_BYTES = 256 * 1024
LONGEST_REST_S = 1.0


class Compacted(NamedTuple):
    """Result of a compaction.

    Attributes:
        removed: messages that are not in the view.
        entries: entries of the view.
        horizon: last position that it covers; None if there was nothing new.
    """

    removed: int = 0
    entries: int = 0
    horizon: Position | None = None


async def compact(topic_log: Log, max_message_bytes: int, max_keys: int = MAX_KEYS) -> Compacted:
    """Build and install a compacted view of all current entries of a log.

    Cancellation: the view is the old one, or the new one.

    Raises:
        NotAllowed: the log is being compacted already.
        StorageError: the disk failed, or the log was deleted meanwhile.
    """
    if topic_log.is_compacting:
        raise NotAllowed(f"{topic_log.name} is being compacted already")
    topic_log.is_compacting = True
    try:
        await _hold_back(topic_log)
        end = topic_log.last_confirmed
        if end.entry_id < 0 or (topic_log.view is not None and end <= topic_log.view.horizon):
            return Compacted()
        for hidden in topic_log.stale_views():
            topic_log.drop_view(hidden, _dropped)
        places, messages = await _first_pass(topic_log, end, max_message_bytes, max_keys)
        entries = await _second_pass(topic_log, end, Survivors(places, max_message_bytes))
        return Compacted(max(messages - len(places), 0), entries, end)
    finally:
        topic_log.is_compacting = False


async def _hold_back(topic_log: Log) -> None:
    """Create the cursor that retains entries until they are compacted."""
    first = topic_log.first_position
    before = Position(first.ledger_id, first.entry_id - 1)
    if topic_log.view is not None:
        before = max(before, topic_log.view.horizon)

    def open_cursor(done: Done) -> None:
        topic_log.open_cursor(COMPACTION_CURSOR, before, None, done, is_internal=True)

    await called_back(open_cursor)


async def _first_pass(topic_log: Log, end: Position, max_bytes: int, max_keys: int) -> tuple[array[int], int]:
    """Return the sorted places of the survivors, and the number of messages."""
    parts = 1
    while True:
        found = array("Q")
        try:
            for part in range(parts):
                latest = Latest(part, parts, max_keys, max_bytes)
                async for piece in _pieces(topic_log, end):
                    await asyncio.to_thread(latest.feed, [entry.payload for entry in piece])
                found.extend(latest.survivors())
            return await asyncio.to_thread(_sorted, found), latest.messages
        except TooManyKeys:
            if parts == MAX_PARTS:
                raise StorageError(
                    f"{topic_log.name} has more than {max_keys * parts} keys: too many to compact"
                ) from None
            parts *= 2


def _sorted(places: array[int]) -> array[int]:
    return array("Q", sorted(places))


async def _second_pass(topic_log: Log, end: Position, survivors: Survivors) -> int:
    """Write the new view, switch over to it, and return how many entries it has."""
    hidden = topic_log.begin_view()
    is_ours = True
    try:
        number = 0
        first: Position | None = None
        async for piece in _pieces(topic_log, end):
            kept = await asyncio.to_thread(survivors.pick, number, [entry.payload for entry in piece])
            stored: list[asyncio.Future[None]] = []
            for at, payload, publish_time_ms in kept:
                entry = piece[at - number]
                first = first or entry.position
                stored.append(_append(hidden, pack(entry.position, payload), entry.messages, publish_time_ms))
            number += len(piece)
            await _all(stored)
        await called_back(hidden.create)
        if topic_log.is_deleted:
            raise StorageError(f"{topic_log.name} was deleted while it was compacted")
        old = topic_log.view
        hidden.close_ledger()
        is_ours = False
        await called_back(lambda done: topic_log.switch_view(hidden, first, end, done))
        if old is not None:
            topic_log.drop_view(old.log, _dropped)
        return hidden.entry_count
    except BaseException:
        if is_ours:
            topic_log.drop_view(hidden, _dropped)
        raise


def _append(hidden: Log, payload: bytes, messages: int, publish_time_ms: int) -> asyncio.Future[None]:
    stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(_: Position, error: Exception | None) -> None:
        settle(stored, error)

    hidden.append(payload, messages, publish_time_ms, done)
    return stored


async def _all(futures: list[asyncio.Future[None]]) -> None:
    """Wait for all; raise the first error only after the last has ended, so that no exception goes unretrieved."""
    for result in await asyncio.gather(*futures, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


async def _pieces(topic_log: Log, end: Position) -> AsyncIterator[list[StoredEntry]]:
    """Yield all entries up to ``end``, the compacted view first, pausing between the pieces."""
    loop = asyncio.get_running_loop()
    reading = CompactedReading(topic_log)
    start = EARLIEST
    while start <= end:
        began_s = loop.time()
        found = await reading.load(start, PIECE_ENTRIES, PIECE_BYTES)
        piece = [entry for entry in found if entry.position <= end]
        if topic_log.is_deleted:
            raise StorageError(f"{topic_log.name} was deleted while it was compacted")
        if not piece:
            return
        yield piece
        last = piece[-1].position
        start = Position(last.ledger_id, last.entry_id + 1)
        await asyncio.sleep(min(loop.time() - began_s, LONGEST_REST_S))


def _dropped(error: Exception | None) -> None:
    if error is not None:
        log.warning("removing an old compacted view failed, it is tried again later: %s", error)


class TopicCompaction:
    """The compactions of one loaded topic, one at a time, and the result of the last one.

    Attributes:
        status: NOT_RUN, RUNNING, SUCCESS or ERROR, since the topic was loaded.
        last_error: why the last one failed; empty if it succeeded.
        last: result of the last successful one.
        succeeded_ms: when that ended.
        failed_ms: when the last failed one ended.
        duration_ms: how long the last successful one took.
    """

    def __init__(self, topic_log: Log, max_message_bytes: int, now_ms: Callable[[], int]) -> None:
        self._log = topic_log
        self._max_message_bytes = max_message_bytes
        self._now_ms = now_ms
        self.status = "NOT_RUN"
        self.last_error = ""
        self.last = Compacted()
        self.succeeded_ms = 0
        self.failed_ms = 0
        self.duration_ms = 0

    @property
    def waiting_bytes(self) -> int:
        """Approximate size of the entries that have not been compacted, in bytes."""
        topic_log = self._log
        entries = topic_log.entry_count
        if not entries:
            return 0
        seen = EARLIEST if topic_log.view is None else topic_log.view.horizon
        waiting = topic_log.entries_between(seen, topic_log.last_confirmed)
        return topic_log.total_bytes * min(waiting, entries) // entries

    @property
    def is_running(self) -> bool:
        """Whether a compaction is running."""
        return self.status == "RUNNING" or self._log.is_compacting

    def begin(self) -> None:
        """Mark a compaction as running.

        Raises:
            NotAllowed: one is running already.
        """
        if self.is_running:
            raise NotAllowed(f"Compaction already in progress: {self._log.name} is being compacted; wait for its end")
        self.status, self.last_error = "RUNNING", ""

    async def run(self) -> None:
        """Compact, after `begin`; errors are not raised but reported in `status`.

        Cancellation: see `compact`.
        """
        began_ms = self._now_ms()
        try:
            done = await compact(self._log, self._max_message_bytes)
        except MagnetarError as error:
            level = logging.INFO if self._log.is_deleted else logging.ERROR
            log.log(level, "compacting %s failed: %s", self._log.name, error)
            self.status, self.last_error, self.failed_ms = "ERROR", str(error), self._now_ms()
            return
        except BaseException as error:
            self.status, self.last_error = "ERROR", f"ended by {error!r}"
            raise
        self.status, self.succeeded_ms = "SUCCESS", self._now_ms()
        self.duration_ms = self.succeeded_ms - began_ms
        if done.horizon is not None:
            self.last = done
