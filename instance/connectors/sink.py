"""Run a sink in place of a function: convert entries to records, and write these at least once or at most once.

    entries → unit → records → transform function → batches → Sink.write_batch → pieces → acknowledgements

Written records are acknowledged, even if the instance stops in the middle of a unit. A rejected record goes to the
dead-letter topic as a separate piece, which is settled when the letter is stored. A record to be retried later remains
open until it is written or dead-lettered; other records of its unit do not wait for it.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import cast

from ...api.connector import Batching, Sink
from ...api.serde import SerDe
from ...client.consumers.received import ReceivedEntry
from ...errors import ProtocolError
from ..acks.dead_letters import DeadLetters, text_of
from ..acks.pieces import OpenInput, Piece, PieceMaker
from ..batch_call import Failure
from ..function_thread import Calls, FunctionThread, Item, Source
from ..publish_request import PublishRequest
from ..stats import now_ms
from ..unit import HeldEntries, Unit
from .pauses import Pauses, never
from .records import records_of
from .session import ConnectorSession
from .transform import Transform
from .writing import Later, Outcome, RecordWriter

LATER_AT_ONCE_MAX = 100
"""Maximum number of records retried between two units."""
_Postponed = tuple[float, int, Later, Unit, OpenInput]


@dataclass(slots=True, kw_only=True)
class SinkCall:
    """A sink and everything needed to write to it; used on its thread.

    Attributes:
        sink: sink to write to.
        session: calls the sink.
        writer: writes records.
        batching: batch limits of the sink.
        dead_letters: creates dead letters of rejected records.
        transform: applied to records before writing, or None.
        is_exact: whether each record requires a sequence.
        may_open: whether the sink may be opened, which requires the instance's lock.
    """

    sink: Sink
    session: ConnectorSession
    writer: RecordWriter
    batching: Batching
    dead_letters: DeadLetters
    transform: Transform | None
    is_exact: bool
    may_open: bool = False

    def write(self, unit: Unit, serde: SerDe, outcome: Outcome) -> None:
        """Write the messages of a unit; raises the same errors as `RecordWriter.write`."""
        failures: list[Failure] = []
        records = records_of(unit, serde, failures, is_exact=self.is_exact)
        if self.transform is not None:
            given = len(records)
            records = self.transform.records(records, unit, failures)
            if len(records) < given:
                left = {placed.position for placed in records} | {failure.position for failure in failures}
                outcome.written += [position for position in range(len(unit)) if position not in left]
        outcome.refused += [(failure.position, failure.error) for failure in failures]
        self.writer.write(records, [len(unit.messages[placed.position]) for placed in records], outcome)

    def refuse(self, thread: FunctionThread, unit: Unit, position: int, error: BaseException) -> PublishRequest:
        """Count and log a rejected message, and return its dead letter."""
        entry, index = unit.locate(position)
        request = self.dead_letters.request(entry, index, unit.messages[position], error)
        message_id = request.options["properties"]["ORIGIN_MESSAGE_ID"]
        thread.refused(
            f"rejected message {message_id} of {entry.topic}, sending it to {request.topic}: {text_of(error)}"
        )
        return request

    def lose(self, thread: FunctionThread, lost: list[tuple[int, Exception]]) -> None:
        """Count and log records that may not have been written."""
        if lost:
            text = f"{len(lost)} records may be lost: ATMOST_ONCE does not retry writes: {text_of(lost[-1][1])}"
            thread.refused(text, len(lost))

    def idle(self) -> None:
        """Open the sink if needed, and call its periodic method."""
        if self.may_open:
            self.session.idle(self.sink.idle)


class Intake:
    """Holds entries taken from the inbox that belong to another input than the current unit.

    Entries of one input are processed together even if those of several inputs are mixed; each input keeps its order.
    The number of entries is limited by the held entries.
    """

    def __init__(self) -> None:
        """Create an empty intake."""
        self._waiting: deque[Item] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put_back(self, item: Item) -> None:
        """Make an entry the next one to be processed."""
        self._waiting.appendleft(item)

    def pop(self) -> Item:
        """Remove and return the entry that has waited longest."""
        return self._waiting.popleft()

    def next_of(self, thread: FunctionThread, source: Source, wait_s: float) -> ReceivedEntry | None:
        """Return the next entry of an input that is available or arrives in time, or None."""
        for number, item in enumerate(self._waiting):
            if item[0] is source:
                del self._waiting[number]
                return item[1]
        until_s = time.monotonic() + wait_s
        while (polled := thread.poll(wait_s)) is not None:
            if polled[0] is source:
                return polled[1]
            self._waiting.append(polled)
            wait_s = until_s - time.monotonic()
        return None

    def gather(
        self, thread: FunctionThread, source: Source, entry: ReceivedEntry, batching: Batching, *, joins: bool = True
    ) -> tuple[Unit, list[ReceivedEntry], list[ReceivedEntry]]:
        """Collect an entry and others of its input that are available or arrive within the batching time.

        Sizes are uncompressed message sizes. Without ``joins`` only the first entry is taken.

        Returns:
            The unit of all wanted messages, all entries, and the entries without wanted messages.
        """
        unit, entries, empty = Unit(), [], []
        until_s = time.monotonic() + batching.time_s
        size = 0
        while True:
            entries.append(entry)
            size += _size_of(entry)
            try:
                indexes = thread.read(entry)
            except ProtocolError as error:
                text = f"dropped damaged entry {entry.message_id} of {entry.topic}"
                thread.damaged(f"{text}: {error}", text)
                empty.append(entry)
            else:
                if indexes is None or indexes:
                    unit.add(entry, indexes)
                else:
                    empty.append(entry)
            if not joins or len(unit) >= batching.records or size >= batching.size:
                return unit, entries, empty
            following = self.next_of(thread, source, until_s - time.monotonic() if batching.time_s else 0.0)
            if following is None:
                return unit, entries, empty
            entry = following
            is_full = len(unit) + entry.permits > batching.records or size + _size_of(entry) > batching.size
            if unit.entries and is_full:
                self.put_back((source, entry))
                return unit, entries, empty


def _size_of(entry: ReceivedEntry) -> int:
    return max(entry.body_bytes, entry.metadata.uncompressed_size)


class SinkMaker(PieceMaker):
    """A `function_thread.Maker` that creates pieces of records written by a sink."""

    def __init__(
        self,
        ship: Callable[[Piece], None],
        drop: Callable[[OpenInput, ReceivedEntry], None],
        publish: Callable[[PublishRequest], None],
    ) -> None:
        """Create a maker of pieces of a sink.

        Args:
            ship: see `PieceMaker`.
            drop: see `PieceMaker`.
            publish: publishes a message that becomes part of the next piece.
        """
        super().__init__(ship, drop)
        self._publish = publish
        self._sink: SinkCall
        self._pauses: Pauses
        self._held: HeldEntries
        self._intake = Intake()
        self._later: list[_Postponed] = []
        self._number = count()
        self._thread: FunctionThread

    def use(self, sink: SinkCall, pauses: Pauses, held: HeldEntries) -> None:
        """Set the sink, its paused inputs and the held entries."""
        self._sink = sink
        self._pauses = pauses
        self._held = held

    def process(self, thread: FunctionThread, calls: Calls, source: Source, entry: ReceivedEntry) -> None:
        """Process an entry together with queued ones."""
        self._thread = thread
        self._intake.put_back((source, entry))
        while self._intake and not thread.is_stopping:
            self.go_on()
            item = self._intake.pop()
            if not self._pauses.park(item, self._held):
                self._write(thread, *item)

    def go_on(self) -> None:
        """Process entries that are due: rejected records, and entries of resumed inputs."""
        self._try_again()
        while (item := self._pauses.parked(never)) is not None and not self._thread.is_stopping:
            self._write(self._thread, *item, joins=False)

    def _write(self, thread: FunctionThread, source: Source, entry: ReceivedEntry, *, joins: bool = True) -> None:
        origin = cast(OpenInput, source)
        unit, _, empty = self._intake.gather(thread, source, entry, self._sink.batching, joins=joins)
        for one in empty:
            self._drop(origin, one)
        if not unit.entries or thread.is_stopping:
            return
        began_s = time.perf_counter()
        outcome = Outcome()
        try:
            self._sink.write(unit, source.serde, outcome)
        finally:
            self._settle(thread, origin, unit, outcome, time.perf_counter() - began_s)

    def _try_again(self) -> None:
        """Retry rejected records that are due."""
        now_s = time.monotonic()
        for _ in range(LATER_AT_ONCE_MAX):
            if not self._later or self._later[0][0] > now_s or self._thread.is_stopping:
                return
            _, _, later, unit, source = heapq.heappop(self._later)
            outcome = Outcome()
            try:
                self._sink.writer.write_again(later, outcome)
            finally:
                self._settle(self._thread, source, unit, outcome, 0.0)

    def _settle(self, thread: FunctionThread, source: OpenInput, unit: Unit, outcome: Outcome, busy_s: float) -> None:
        """Ship finished records, and dead-letter rejected ones."""
        for later in outcome.later:
            heapq.heappush(self._later, (later.due_s, next(self._number), later, unit, source))
        self._sink.lose(thread, outcome.lost)
        done = sorted([*outcome.written, *(position for position, _ in outcome.lost)])
        failed = len(outcome.lost) + len(outcome.refused)
        thread.stats.count_run(len(outcome.written) + failed, failed, busy_s, now_ms())
        for begin, end in _runs(done):
            self._ship_run(source, unit, begin, end)
        for position, error in outcome.refused:
            self._publish(self._sink.refuse(thread, unit, position, error))
            self._ship_run(source, unit, position, position + 1)

    def _ship_run(self, source: OpenInput, unit: Unit, begin: int, end: int) -> None:
        changes = None
        if self.state is not None:
            changes, is_taken = self.state.take(ends_unit=True)
            if not is_taken:
                return  # stopping: the inputs are redelivered
        tickets, self.tickets = self.tickets, []
        self._ship_piece(Piece(source, unit, begin, end, set(), [], tickets, 0, 0, changes))


def _runs(positions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each run of consecutive positions."""
    waiting = deque(positions)
    while waiting:
        begin = end = waiting.popleft()
        while waiting and waiting[0] == end + 1:
            end = waiting.popleft()
        yield begin, end + 1
