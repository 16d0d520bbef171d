"""The thread that user code runs on: takes entries, calls the function, ships outputs in pieces.

Design: the thread and the event loop exchange entries and pieces, never messages. Entries that are queued already are
joined into one unit, so that their outputs go out as one entry; nothing is waited for. Inside a unit the thread works
in steps of about `STEP_S`, measured on the function itself: after each step it looks whether it must stop and whether
outputs have waited for `SHIP_AFTER_S`. A fast function therefore ships once per unit; a slow one does not hold back its
first output until the thousandth is made.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..api.serde import SerDe
from ..client.config import Compression
from ..client.consumers.consumer import Consumer
from ..client.consumers.merged import MergedConsumer
from ..client.consumers.received import ReceivedEntry
from ..client.producers.outgoing import OutgoingEntry, encode_entry
from ..errors import ProtocolError
from ..wire.pulsar_api_pb2 import SingleMessageMetadata
from .batch_call import BatchCall, Blame, Failure, Results
from .function_context import FunctionContext
from .gate import Gate
from .markers import HeaderMaker
from .publish_request import MESSAGE_BYTES_MAX
from .publisher import Ticket
from .recent_acks import RecentAcks
from .state.binding import StateLink
from .state.layer import Layer
from .stats import InstanceStats, format_error
from .stopping import InstanceStopping
from .unit import Unit

UNIT_MESSAGES_MAX = 1000
UNIT_BYTES_MAX = 128 * 1024
OUTPUT_ENTRY_BYTES_MAX = 1024 * 1024  # larger outputs of one input entry go out as several entries
STEP_S = 0.005
SHIP_AFTER_S = 0.010
_FIRST_STEP = 1  # nothing is known of the function yet


@dataclass(frozen=True, slots=True)
class Input:
    """One input topic.

    Attributes:
        topic: as configured.
        consumer: where its entries come from.
        serde: decodes them.
        recent: what was acknowledged a moment ago; None where an entry comes again only if it was asked for.
    """

    topic: str
    consumer: Consumer | MergedConsumer
    serde: SerDe
    recent: RecentAcks | None = None


@dataclass(slots=True)
class Piece:
    """A run of messages that is processed, on its way to the broker.

    Attributes:
        source: where its entries came from.
        unit: the unit that it is a part of.
        begin: its first position.
        end: the position behind its last.
        failed: positions that must come again.
        outputs: entries to send.
        tickets: what was published through the context meanwhile.
        messages: how many messages the outputs have.
        size: their bytes.
        changes: what was changed in the function's state meanwhile.
        waiting_for: answers of the broker that are missing; the event loop's.
        error: why an output was not stored; the event loop's.
    """

    source: Input
    unit: Unit
    begin: int
    end: int
    failed: set[int]
    outputs: list[OutgoingEntry]
    tickets: list[Ticket]
    messages: int
    size: int
    changes: Layer | None = None
    waiting_for: int = 0
    error: BaseException | None = None


@dataclass(slots=True)
class Calls:
    """The loaded function, ready to be called.

    Attributes:
        batch_call: calls it.
        context: what it gets as second argument; None if it takes none.
        headers: makes metadata of outputs.
        has_output: whether there is an output topic.
        compression: of outputs.
        serdes: what decodes each input topic.
        state: the function's table; None if it has no context or there is no state store.
    """

    batch_call: BatchCall
    context: FunctionContext | None
    headers: HeaderMaker
    has_output: bool
    compression: Compression
    serdes: dict[str, SerDe]
    state: StateLink | None = None


class Listener(Protocol):
    """What the thread tells, from the thread itself."""

    def loaded(self, calls: Calls) -> None:
        """The function is loaded; entries may come."""

    def failed(self, text: str) -> None:
        """A message failed; ``text`` says which and why."""

    def ship(self, piece: Piece) -> None:
        """Take a piece."""

    def damaged(self, source: Input, entry: ReceivedEntry) -> None:
        """Take an entry that cannot be read."""

    def nothing_to_do(self, source: Input, entry: ReceivedEntry) -> None:
        """Take an entry of which no message is wanted."""

    def ended(self, error: BaseException | None) -> None:
        """The thread ends; with an error if the function cannot go on."""


@dataclass(slots=True)
class _Building:
    """Outputs collected since the last piece."""

    begin: int
    began_s: float
    failed: set[int] = field(default_factory=set)
    outputs: list[bytes] = field(default_factory=list)
    headers: list[SingleMessageMetadata | None] | None = None


class FunctionThread(threading.Thread):
    """Runs one function.

    Attributes:
        inbox: entries to process, with their input; None ends the thread once it is reached.
        tickets: what the context published since the last piece.
        is_stopping: set to end the thread after the step at hand; what is queued stays unprocessed.
    """

    def __init__(self, name: str, load: Callable[[], Calls], listener: Listener, stats: InstanceStats, gate: Gate):
        """Prepare.

        Args:
            name: of the thread.
            load: imports and makes the function, on this thread.
            listener: is told what happens.
            stats: counts.
            gate: bounds the outputs that are on their way.
        """
        super().__init__(name=name, daemon=True)
        self.inbox: queue.SimpleQueue[tuple[Input, ReceivedEntry] | None] = queue.SimpleQueue()
        self.tickets: list[Ticket] = []
        self.is_stopping = False
        self._load = load
        self._listener = listener
        self._stats = stats
        self._gate = gate
        self._next: tuple[Input, ReceivedEntry] | None = None
        self._step = _FIRST_STEP

    def run(self) -> None:
        """Load the function and call it until told to stop."""
        error: BaseException | None = None
        try:
            calls = self._load()
            self._listener.loaded(calls)
            while (work := self._gather()) is not None:
                self._process(calls, *work)
        except InstanceStopping:
            pass  # the message that waited for the state store comes again
        except BaseException as raised:  # noqa: BLE001  SystemExit of user code too: it ends the instance, with a reason
            error = raised
        self._listener.ended(error)

    def request_stop(self) -> None:
        """End the thread as soon as the function lets it (from any thread)."""
        self.is_stopping = True
        self.inbox.put(None)
        self._gate.close()

    # -- gathering ------------------------------------------------------------------------------------------------

    def _gather(self) -> tuple[Input, Unit] | None:
        """Wait for an entry and return it with those of the same input that are queued behind it; None at the end."""
        unit = Unit()
        source: Input | None = None
        size = 0
        while not self.is_stopping:
            item = self._take(waits=not unit.entries)
            if item is None:
                break
            if source is not None and item[0] is not source:
                self._next = item
                break
            source, entry = item
            messages = entry.permits
            if unit.entries and (len(unit) + messages > UNIT_MESSAGES_MAX or size + entry.body_bytes > UNIT_BYTES_MAX):
                self._next = item
                break
            size += entry.body_bytes
            self._add(unit, source, entry)
            if len(unit) >= UNIT_MESSAGES_MAX:
                break
        if source is None or not unit.entries or self.is_stopping:
            return None
        return source, unit

    def _take(self, waits: bool) -> tuple[Input, ReceivedEntry] | None:
        item, self._next = self._next, None
        if item is not None:
            return item
        if waits:
            return self.inbox.get()
        try:
            item = self.inbox.get_nowait()
        except queue.Empty:
            return None
        if item is None:
            self.inbox.put(None)  # found again once the unit is done
        return item

    def _add(self, unit: Unit, source: Input, entry: ReceivedEntry) -> None:
        try:
            payloads = entry.payloads
            # A message that compaction took out is empty; only then is a look at each one's metadata needed.
            indexes = entry.wanted_indexes() if entry.ack_set or b"" in payloads else None
        except ProtocolError as error:
            text = f"entry {entry.message_id} of {entry.topic} is damaged and was dropped: {error}"
            self._stats.system_exception(text, _now_ms())
            self._listener.damaged(source, entry)
            return
        self._stats.total.received += len(payloads) if indexes is None else len(indexes)
        if indexes is None or indexes:
            unit.add(entry, indexes)
        else:
            self._listener.nothing_to_do(source, entry)

    # -- processing -----------------------------------------------------------------------------------------------

    def _process(self, calls: Calls, source: Input, unit: Unit) -> None:
        count = len(unit)
        began = time.perf_counter()
        needs_headers = calls.has_output and any(map(calls.headers.needs_headers, unit.entries))
        building = _Building(0, began, headers=[] if needs_headers else None)
        position = 0
        while position < count and not self.is_stopping:
            end = min(position + self._step, count)
            messages: Sequence[bytes] = unit.messages if end - position == count else unit.messages[position:end]
            if calls.context is not None:
                calls.context.enter(calls.batch_call.place, unit, position)
            results = calls.batch_call.run(messages, source.serde)
            now = time.perf_counter()
            self._take_results(calls, source, unit, position, results, building)
            self._count(results, now - began)
            self._step = self._next_step(end - position, now - began)
            began = now
            position = end
            is_due = now - building.began_s > SHIP_AFTER_S or (calls.state is not None and calls.state.session.is_full)
            if position < count and is_due:
                self._ship(calls, source, unit, position, building)
                building = _Building(position, now, headers=[] if needs_headers else None)
        self._ship(calls, source, unit, position, building)
        if calls.context is not None:
            calls.context.leave()

    def _next_step(self, messages: int, busy_s: float) -> int:
        """Return how many messages to process before looking around again; grows slowly, shrinks at once."""
        fitting = int(STEP_S / busy_s * messages) if busy_s > 0 else UNIT_MESSAGES_MAX
        return max(1, min(fitting, max(self._step, messages) * 8, UNIT_MESSAGES_MAX))

    def _count(self, results: Results, busy_s: float) -> None:
        self._stats.count_run(len(results.outputs), len(results.failures), busy_s, _now_ms())

    def _take_results(
        self, calls: Calls, source: Input, unit: Unit, base: int, results: Results, building: _Building
    ) -> None:
        outputs = results.outputs
        if not calls.has_output:
            outputs = []
        elif sum(map(len, filter(None, outputs))) > MESSAGE_BYTES_MAX:
            self._refuse_large_outputs(results)
        for failure in results.failures:
            building.failed.add(base + failure.position)
            self._report(source, unit, base, failure)
        if building.headers is not None:
            for offset, output in enumerate(outputs):
                if output is not None:
                    building.headers.append(calls.headers.header(*unit.locate(base + offset)))
        building.outputs += [output for output in outputs if output is not None]

    def _refuse_large_outputs(self, results: Results) -> None:
        for position, output in enumerate(results.outputs):
            if output is not None and len(output) > MESSAGE_BYTES_MAX:
                error = ValueError(
                    f"output of {len(output)} bytes exceeds the limit of {MESSAGE_BYTES_MAX} bytes for a message;"
                    " return less, or store it elsewhere and return where"
                )
                results.outputs[position] = None
                results.failures.append(Failure(position, error, Blame.USER))

    def _report(self, source: Input, unit: Unit, base: int, failure: Failure) -> None:
        entry, index = unit.locate(base + failure.position)
        text = format_error(failure.error)
        if failure.blame is Blame.USER:
            self._stats.user_exception(text, _now_ms())
        else:
            self._stats.system_exception(text, _now_ms())
        self._listener.failed(f"message {entry.message_id}:{index} of {entry.topic} failed: {text}")

    def _ship(self, calls: Calls, source: Input, unit: Unit, end: int, building: _Building) -> None:
        if end == building.begin:
            return  # stopped before anything was done
        changes = None
        if calls.state is not None:
            changes, is_taken = calls.state.take(ends_unit=end == len(unit))
            if not is_taken:
                return  # stopping: the inputs come again
        tickets, self.tickets = self.tickets, []
        outputs = building.outputs
        size = sum(map(len, outputs))
        if outputs and not self._gate.enter(len(outputs), size):
            return  # stopping: the inputs come again
        entries = _entries(outputs, building.headers, size, calls.compression)
        self._listener.ship(
            Piece(source, unit, building.begin, end, building.failed, entries, tickets, len(outputs), size, changes)
        )


def _entries(
    outputs: list[bytes], headers: list[SingleMessageMetadata | None] | None, size: int, compression: Compression
) -> list[OutgoingEntry]:
    """Return outputs as entries, usually one."""
    if not outputs:
        return []
    if size <= OUTPUT_ENTRY_BYTES_MAX and len(outputs) <= UNIT_MESSAGES_MAX:
        return [encode_entry(outputs, headers, compression=compression)]
    entries: list[OutgoingEntry] = []
    begin = 0
    while begin < len(outputs):
        end, sum_bytes = begin, 0
        while end < len(outputs) and end - begin < UNIT_MESSAGES_MAX:
            sum_bytes += len(outputs[end])
            if sum_bytes > OUTPUT_ENTRY_BYTES_MAX and end > begin:
                break
            end += 1
        part = None if headers is None else headers[begin:end]
        entries.append(encode_entry(outputs[begin:end], part, compression=compression))
        begin = end
    return entries


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
