"""Join queued entries into units, and ship their outputs in pieces.

Design: queued entries are joined into one unit, so that their outputs are sent as one entry; the maker does not wait
for more entries. After each step it checks whether outputs have waited for `OutputBounds.delay_s`. Therefore a fast
function ships once per unit, and a slow one does not delay its first output until the thousandth is ready.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from ...api.serde import SerDe
from ...client.config import Compression
from ...client.consumers.received import ReceivedEntry
from ...client.producers.outgoing import OutgoingEntry, encode_entry
from ...errors import ProtocolError
from ..batch_call import Blame, Failure, Results
from ..deaths.careful import CarefulCalls
from ..endpoint_settings import OutputBounds
from ..function_thread import Calls, FunctionThread, Source, collect
from ..gate import Gate, runs_within
from ..ports import Input
from ..publish_request import MESSAGE_BYTES_MAX
from ..state.layer import Layer
from ..state.writer import StateLink
from ..unit import Unit
from .dead_letters import reason
from .publisher import Ticket
from .retries import TriesInPlace

UNIT_MESSAGES_MAX = 1000
UNIT_BYTES_MAX = 128 * 1024
OUTPUT_MESSAGES_MAX = 50_000
OUTPUT_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class OpenInput:
    """An open input; implements `function_thread.Source`.

    Attributes:
        topic: configured name.
        input: delivers and acknowledges the entries.
        serde: decodes the messages.
    """

    topic: str
    input: Input
    serde: SerDe


@dataclass(slots=True)
class Piece:
    """A run of processed messages whose outputs are being sent.

    Attributes:
        source: input of the entries.
        unit: unit that contains the run.
        begin: first position of the run.
        end: position after the last.
        failed: positions to be redelivered.
        outputs: entries to send.
        tickets: tickets of messages published through the context.
        messages: number of messages in the outputs.
        size: size of the outputs in bytes.
        changes: state changes of the function.
        ticket: finished when the outputs are stored, so that a later piece can wait for this one; or None.
        members: pieces without outputs that are settled in place of this one, once its outputs are stored.
        waits: in a member, published messages by position; if one is not stored, that position fails.
        waiting_for: number of missing receipts; used by the event loop.
        error: why an output was not stored; used by the event loop.
    """

    source: OpenInput
    unit: Unit
    begin: int
    end: int
    failed: set[int]
    outputs: list[OutgoingEntry]
    tickets: list[Ticket]
    messages: int
    size: int
    changes: Layer | None = None
    ticket: Ticket | None = None
    members: Sequence[Piece] = ()
    waits: Sequence[tuple[int, Ticket]] = ()
    waiting_for: int = 0
    error: BaseException | None = None


@dataclass(slots=True)
class Building:
    """Outputs collected since the last piece was shipped.

    Attributes:
        begin: position of the first message.
        began_s: start time, by `time.perf_counter`.
        made: attributes of the outputs of the whole unit; None if no output has any.
        failed: positions of failed messages.
        outputs: collected outputs.
        headers: attributes of each output; empty if no output has any.
    """

    begin: int
    began_s: float
    made: list[bytes] | None
    failed: set[int] = field(default_factory=set)
    outputs: list[bytes] = field(default_factory=list)
    headers: list[bytes] = field(default_factory=list)


class PieceMaker:
    """A `function_thread.Maker` that creates pieces.

    Attributes:
        bounds: limits of output entries.
        gate: limits the outputs in flight; the function's thread waits there.
        tickets: tickets of messages published since the last piece.
        keeps: makes the current message wait for a published one; returns False without a current message.
        void: ids of entries that must no longer be processed.
        state: the function's state; None without a context or a state store.
        keeps_reasons: whether units record why their messages failed.
        in_place: retries messages before later ones are processed, or None.
        careful: records calls after one has ended the process; None if such deaths are not counted.
    """

    def __init__(
        self,
        ship: Callable[[Piece], None],
        drop: Callable[[OpenInput, ReceivedEntry], None],
        bounds: OutputBounds | None = None,
    ) -> None:
        """Create a maker of pieces.

        Args:
            ship: receives each piece, on the function's thread.
            drop: receives each entry without messages for the function, on the function's thread.
            bounds: limits of output entries; None for the defaults.
        """
        self.bounds = bounds or OutputBounds()
        self.gate = Gate(self.bounds.messages(OUTPUT_MESSAGES_MAX), OUTPUT_BYTES_MAX)
        self.tickets: list[Ticket] = []
        self.keeps: Callable[[Ticket], bool] = self._keep
        self.void: dict[int, ReceivedEntry] = {}
        self.state: StateLink | None = None
        self.keeps_reasons = False
        self.in_place: TriesInPlace | None = None
        self.careful: CarefulCalls | None = None
        self._ship_piece = ship
        self._drop = drop

    def process(self, thread: FunctionThread, calls: Calls, source: Source, entry: ReceivedEntry) -> None:
        """Process an entry together with queued ones."""
        unit: Unit | None = self.gather(thread, source, entry)
        while unit is not None and unit.entries and not thread.is_stopping:
            unit = self._process(thread, calls, source, unit)

    def _process(self, thread: FunctionThread, calls: Calls, source: Source, unit: Unit) -> Unit | None:
        """Process a unit; return the unprocessed rest if a seek moved its input meanwhile, else None."""
        rest: Unit | None = None
        count = len(unit)
        made = calls.headers.of_unit(unit) if calls.has_output else None
        building = Building(0, time.perf_counter(), made)
        state, end = self.state, 0
        in_place = self.in_place if self.in_place is not None and self.in_place.concerns(unit) else None
        if in_place is not None:
            steps = in_place.steps(thread, calls, source, unit)
        elif self.careful is not None and self.careful.is_on:
            steps = self.careful.steps(thread, calls, source, unit)
        else:
            steps = thread.steps(calls, source, unit)
        for position, results, busy_s in steps:
            end = position + results.messages
            self._take_results(thread, calls, unit, position, results, building)
            thread.count(results, busy_s)
            if end < count and self.void and (rest := unit.cut_if(end, self._is_void, self._forget_void)) is not None:
                count = end
            if end == count:
                break
            now_s = time.perf_counter()
            if now_s - building.began_s > self.bounds.delay_s or (state is not None and state.session.is_full):
                self._ship(calls, source, unit, end, building)
                building = Building(end, now_s, made)
        self._ship(calls, source, unit, end, building)
        if calls.context is not None:
            calls.context.leave()
        return rest

    def _is_void(self, entry: ReceivedEntry) -> bool:
        return id(entry) in self.void

    def _forget_void(self, entry: ReceivedEntry) -> bool:
        return self.void.pop(id(entry), None) is not None

    # -- gathering ------------------------------------------------------------------------------------------------

    def gather(self, thread: FunctionThread, source: Source, entry: ReceivedEntry) -> Unit:
        """Return a unit of an entry and the entries of the same input queued after it."""
        unit = Unit()
        messages, size = unit.messages, 0
        while True:
            size += entry.body_bytes
            if self.void and self._forget_void(entry):
                if (item := thread.poll()) is None:
                    return unit
                if item[0] is not source:
                    thread.put_back(item)
                    return unit
                entry = item[1]
                continue
            try:
                indexes = thread.read(entry)
            except ProtocolError as error:
                self.drop_damaged(thread, source, entry, error)
            else:
                if indexes is None or indexes:
                    unit.add(entry, indexes)
                else:
                    self.drop(source, entry)
            if len(messages) >= UNIT_MESSAGES_MAX or (item := thread.poll()) is None:
                return unit
            entry = item[1]
            is_full = len(messages) + entry.permits > UNIT_MESSAGES_MAX or size + entry.body_bytes > UNIT_BYTES_MAX
            if item[0] is not source or (messages and is_full):
                thread.put_back(item)
                return unit

    def drop(self, source: Source, entry: ReceivedEntry) -> None:
        """Drop an entry without messages for the function."""
        self._drop(cast(OpenInput, source), entry)

    def drop_damaged(self, thread: FunctionThread, source: Source, entry: ReceivedEntry, error: ProtocolError) -> None:
        """Count, log and drop an entry that cannot be read."""
        text = f"dropped damaged entry {entry.message_id} of {entry.topic}"
        thread.damaged(f"{text}: {error}", text)
        self._drop(cast(OpenInput, source), entry)

    # -- results --------------------------------------------------------------------------------------------------

    def _take_results(
        self,
        thread: FunctionThread,
        calls: Calls,
        unit: Unit,
        base: int,
        results: Results,
        building: Building,
    ) -> None:
        if calls.has_output and sum(map(len, filter(None, results.outputs))) > MESSAGE_BYTES_MAX:
            _refuse_large_outputs(results)
        if results.failures:
            self.note_failures(thread, unit, base, results.failures, building.failed)
        if calls.has_output:
            collect(results, building.outputs, building.headers, building.made, base)

    def note_failures(
        self, thread: FunctionThread, unit: Unit, base: int, failures: Sequence[Failure], failed: set[int]
    ) -> None:
        """Count and log failed messages, and add their positions to ``failed``.

        Args:
            thread: counts and logs the failures.
            unit: unit that contains the messages.
            base: offset of the failures' positions in the unit.
            failures: failures of the messages.
            failed: set that the positions are added to.
        """
        positions = [base + failure.position for failure in failures]
        failed.update(positions)
        names = (f"message {entry.message_id}:{index} of {entry.topic}" for entry, index in map(unit.locate, positions))
        tracebacks = thread.all_failed(failures, names)
        if self.keeps_reasons:
            for position, failure, text in zip(positions, failures, tracebacks, strict=True):
                unit.reasons[position] = reason(failure.error, text)

    def _keep(self, ticket: Ticket) -> bool:
        self.tickets.append(ticket)
        return True

    def _ship(self, calls: Calls, source: Source, unit: Unit, end: int, building: Building) -> None:
        if end == building.begin:
            return  # stopped before anything was done
        changes = None
        if self.state is not None:
            changes, is_taken = self.state.take(ends_unit=end == len(unit))
            if not is_taken:
                return  # stopping: the inputs are redelivered
        tickets, self.tickets = self.tickets, []
        outputs = building.outputs
        size = sum(map(len, outputs))
        if outputs and not self.gate.enter(len(outputs), size):
            return  # stopping: the inputs are redelivered
        entries = entries_of(outputs, building.headers or None, size, calls.compression, self.bounds)
        origin = cast(OpenInput, source)
        self.send(
            Piece(origin, unit, building.begin, end, building.failed, entries, tickets, len(outputs), size, changes)
        )

    def send(self, piece: Piece) -> None:
        """Send a piece whose outputs have passed the gate."""
        self._ship_piece(piece)


def too_large(output: bytes) -> ValueError:
    """Return the error for an output that exceeds the message size limit."""
    return ValueError(
        f"output of {len(output)} bytes exceeds the message size limit of {MESSAGE_BYTES_MAX} bytes:"
        " return less data, or store it elsewhere and return a reference"
    )


def _refuse_large_outputs(results: Results) -> None:
    for position, output in enumerate(results.outputs):
        if output is not None and len(output) > MESSAGE_BYTES_MAX:
            results.outputs[position] = None
            results.failures.append(Failure(position, too_large(output), Blame.USER))


def entries_of(
    outputs: list[bytes], headers: list[bytes] | None, size: int, compression: Compression, bounds: OutputBounds
) -> list[OutgoingEntry]:
    """Encode outputs as entries, usually a single one."""
    if not outputs:
        return []
    if size <= bounds.entry_bytes and len(outputs) <= bounds.entry_messages:
        return [encode_entry(outputs, headers, compression=compression)]
    return [
        encode_entry(outputs[run], None if headers is None else headers[run], compression=compression)
        for run in runs_within(map(len, outputs), bounds.entry_messages, bounds.entry_bytes)
    ]
