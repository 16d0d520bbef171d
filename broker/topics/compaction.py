"""Topic compaction: two passes over the entries, followed by a switch to the new compacted view.

Design: entries are read in small pieces, as for any consumer with a backlog, and processed in a thread. After each
piece, the pass pauses for as long as the piece took, so that compaction uses at most half a core and other work on the
loop takes precedence. Entries cannot change during a pass, because compacted views are only changed here, and the log
drops no ledgers during compaction.

After a failure, the old view remains in use.
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
"""Maximum number of keys in memory, which take about 40 MB; more keys require more passes."""
MAX_PARTS = 256
PIECE_ENTRIES = 256
PIECE_BYTES = 256 * 1024
LONGEST_REST_S = 1.0


class Compacted(NamedTuple):
    """Result of a compaction.

    Attributes:
        removed: number of messages that are not in the view.
        entries: number of entries in the view.
        horizon: last position that the view covers; None if there was nothing to compact.
    """

    removed: int = 0
    entries: int = 0
    horizon: Position | None = None


async def compact(topic_log: Log, max_message_bytes: int, max_keys: int = MAX_KEYS) -> Compacted:
    """Create and install a compacted view of all current entries of a log.

    Cancellation: either the old or the new view is installed.

    Raises:
        NotAllowed: the log is already being compacted.
        StorageError: the disk failed, or the log was deleted meanwhile.
    """
    if topic_log.is_compacting:
        raise NotAllowed(f"{topic_log.name} is already being compacted")
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
    """Create the cursor that retains entries until they are compacted, unless it exists."""
    first = topic_log.first_position
    before = Position(first.ledger_id, first.entry_id - 1)
    if topic_log.view is not None:
        before = max(before, topic_log.view.horizon)

    def open_cursor(done: Done) -> None:
        topic_log.open_cursor(COMPACTION_CURSOR, before, None, done, is_internal=True)

    await called_back(open_cursor)


async def _first_pass(topic_log: Log, end: Position, max_bytes: int, max_keys: int) -> tuple[array[int], int]:
    """Return the sorted places of the messages to keep, and the total number of messages."""
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
                raise StorageError(f"cannot compact {topic_log.name}: more than {max_keys * parts} keys") from None
            parts *= 2


def _sorted(places: array[int]) -> array[int]:
    return array("Q", sorted(places))


async def _second_pass(topic_log: Log, end: Position, survivors: Survivors) -> int:
    """Write the new view, switch to it, and return its number of entries."""
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
            raise StorageError(f"{topic_log.name} was deleted during compaction")
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
    """Wait for all futures, then raise the first error, so that every exception is retrieved."""
    for result in await asyncio.gather(*futures, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


async def _pieces(topic_log: Log, end: Position) -> AsyncIterator[list[StoredEntry]]:
    """Yield all entries up to ``end`` in pieces, those in the compacted view first, with pauses."""
    loop = asyncio.get_running_loop()
    reading = CompactedReading(topic_log)
    start = EARLIEST
    while start <= end:
        began_s = loop.time()
        found = await reading.load(start, PIECE_ENTRIES, PIECE_BYTES)
        piece = [entry for entry in found if entry.position <= end]
        if topic_log.is_deleted:
            raise StorageError(f"{topic_log.name} was deleted during compaction")
        if not piece:
            return
        yield piece
        last = piece[-1].position
        start = Position(last.ledger_id, last.entry_id + 1)
        await asyncio.sleep(min(loop.time() - began_s, LONGEST_REST_S))


def _dropped(error: Exception | None) -> None:
    if error is not None:
        log.warning("cannot remove an old compacted view, retrying later: %s", error)


class TopicCompaction:
    """Runs the compactions of a loaded topic, one at a time, and stores their results.

    Attributes:
        status: NOT_RUN, RUNNING, SUCCESS or ERROR, since the topic was loaded.
        last_error: error of the last compaction; empty if it succeeded.
        last: result of the last successful compaction.
        succeeded_ms: end time of the last successful compaction.
        failed_ms: end time of the last failed compaction.
        duration_ms: duration of the last successful compaction.
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
            NotAllowed: a compaction is already running.
        """
        if self.is_running:
            raise NotAllowed(
                f"Compaction already in progress: wait for the running compaction of {self._log.name} to finish"
            )
        self.status, self.last_error = "RUNNING", ""

    async def run(self) -> None:
        """Run a compaction after `begin`; errors are reported in `status` and not raised.

        Cancellation: either the old or the new view is installed.
        """
        began_ms = self._now_ms()
        try:
            done = await compact(self._log, self._max_message_bytes)
        except MagnetarError as error:
            level = logging.INFO if self._log.is_deleted else logging.ERROR
            log.log(level, "compaction of %s failed: %s", self._log.name, error)
            self.status, self.last_error, self.failed_ms = "ERROR", str(error), self._now_ms()
            return
        except BaseException as error:
            self.status, self.last_error = "ERROR", f"interrupted by {error!r}"
            raise
        self.status, self.succeeded_ms = "SUCCESS", self._now_ms()
        self.duration_ms = self.succeeded_ms - began_ms
        if done.horizon is not None:
            self.last = done
