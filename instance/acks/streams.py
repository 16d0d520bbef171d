"""Run generator functions: outputs are sent while the function runs, and the input is settled when it has ended.

Design: as in `PieceMaker`, outputs of queued messages are sent as one entry, but outputs never wait longer than
`OutputBounds.delay_s`. A message with many outputs has several pieces, of which only the last settles it. Each piece
waits for the previous one through a ticket, so that the message is acknowledged when all its outputs are stored. Only
the last ticket is retained, regardless of the number of outputs.

A failed message is redelivered as a whole; outputs already sent remain, and unsent ones are dropped. State changes are
sent with the piece that settles their message, never with another message's piece. Only if there are too many changes
are they sent earlier; then they cannot be undone if the message fails.
"""

from __future__ import annotations

import time
from typing import cast

from ...client.consumers.received import ReceivedEntry
from ..batch_call import Blame, Failure, decode
from ..function_thread import STEP_MESSAGES_MAX, STEP_S, Calls, FunctionThread, Source
from ..generator_call import GeneratorCall, RunningCall
from ..publish_request import MESSAGE_BYTES_MAX
from ..stats import now_ms
from ..unit import Unit
from ..values.writers import follow
from .pieces import (
    OpenInput,
    Piece,
    PieceMaker,
    entries_of,
    too_large,
)
from .publisher import Ticket

FIRST_CHUNK_MAX = 64


class StreamMaker:
    """A `function_thread.Maker` that creates pieces of a generator function's outputs."""

    def __init__(self, maker: PieceMaker) -> None:
        """Create a maker of streamed pieces.

        Args:
            maker: the settlement's maker, which collects units and receives pieces.
        """
        self._maker = maker
        self._chunk = 1

    def process(self, thread: FunctionThread, calls: Calls, source: Source, entry: ReceivedEntry) -> None:
        """Process an entry together with queued ones."""
        unit = self._maker.gather(thread, source, entry)
        if not unit.entries or thread.is_stopping:
            return
        stream = _Stream(self._maker, thread, calls, source, unit, self._chunk)
        stream.run()
        self._chunk = stream.chunk
        if calls.context is not None:
            calls.context.leave()


class _Stream:
    """The processing of one unit.

    Attributes:
        chunk: number of outputs taken per step, chosen so that a step takes about `STEP_S`.
    """

    def __init__(
        self, maker: PieceMaker, thread: FunctionThread, calls: Calls, source: Source, unit: Unit, chunk: int
    ) -> None:
        self.chunk = chunk
        self._maker = maker
        self._thread = thread
        self._calls = calls
        self._call = cast(GeneratorCall, calls.batch_call)
        self._source = cast(OpenInput, source)
        self._unit = unit
        self._made = calls.headers.of_unit(unit) if calls.has_output else None
        self._begin = 0  # all earlier positions are settled
        self._failed: set[int] = set()
        self._outputs: list[bytes] = []
        self._headers: list[bytes] = []
        self._size = 0
        self._began_s = time.perf_counter()
        self._before: Ticket | None = None  # ticket of the last piece, if it left messages unsettled
        self._busy_s = 0.0

    def run(self) -> None:
        """Process the messages until all are done or the thread is stopped."""
        done, state = 0, self._maker.state
        for position in range(len(self._unit)):
            if self._thread.is_stopping:
                break
            if self._maker.void and id(self._unit.locate(position)[0]) in self._maker.void:
                done = position + 1  # a seek moved the input; the broker redelivers the message if needed
                continue
            self._busy_s = 0.0
            if not self._process(position):
                break
            done = position + 1
            self._thread.stats.count_run(1, position in self._failed, self._busy_s, now_ms())
            if done < len(self._unit) and (self._is_due() or (state is not None and state.session.is_full)):
                if not self._ship(done):
                    return
                self._begin = done
        if done > self._begin:
            self._ship(done)

    def _process(self, position: int) -> bool:
        """Call the function on one message; return False if the thread was stopped before it finished."""
        careful = self._maker.careful
        if careful is None or not careful.is_on:
            return self._call_with(position)
        if (error := careful.given_up(self._unit, position)) is not None:
            self._fail(position, Failure(0, error, Blame.USER))
            return True
        with careful.in_flight(self._unit, position, position + 1):
            return self._call_with(position)

    def _call_with(self, position: int) -> bool:
        failures: list[Failure] = []
        follow(self._source.serde, self._unit, position)
        (value,) = decode(self._unit.messages[position : position + 1], self._source.serde, failures)
        if failures:
            self._fail(position, failures[0])
            return True
        if self._calls.context is not None:
            self._calls.context.enter(self._call.place, self._unit, position)
        self._call.follow(self._unit, position)
        self._call.place.enter(iter(()), range(1))
        session = self._call.session
        if session is not None:
            session.begin_call()
        mark = len(self._outputs)
        self.chunk = min(self.chunk, FIRST_CHUNK_MAX)  # the size of this message's outputs is unknown
        running = self._call.begin(value)
        try:
            while not running.is_over:
                outputs = self._take(running)
                if running.error is None and self._calls.has_output:
                    self._add(position, outputs)
                if running.is_over:
                    break
                if self._is_due() and not self._thread.is_stopping:
                    if not self._ship_part(position):
                        break
                    mark = 0
                if self._thread.is_stopping:
                    break
        finally:
            self._call.place.leave()
        if running.error is not None:
            self._drop(mark)
            if session is not None:
                session.undo()
            self._fail(position, Failure(0, running.error, Blame.USER))
        elif not running.is_over:
            self._drop(mark)
            running.close()
            if session is not None:
                session.undo()  # the message is redelivered
            return False
        return True

    def _take(self, running: RunningCall) -> list[bytes]:
        began_s = time.perf_counter()
        outputs = running.take(self.chunk)
        busy_s = time.perf_counter() - began_s
        self._busy_s += busy_s
        fitting = int(STEP_S / busy_s * len(outputs)) if busy_s > 0 else STEP_MESSAGES_MAX
        size = sum(map(len, outputs))
        most = self._maker.bounds.entry_bytes
        if size > most // 8:  # limited to one entry
            fitting = min(fitting, most * len(outputs) // size)
        self.chunk = max(1, min(fitting, self.chunk * 8, STEP_MESSAGES_MAX))
        if self._calls.has_output and size > MESSAGE_BYTES_MAX:
            large = next((output for output in outputs if len(output) > MESSAGE_BYTES_MAX), None)
            if large is not None:
                running.fail(too_large(large))
                running.close()
        return outputs

    def _add(self, position: int, outputs: list[bytes]) -> None:
        self._outputs += outputs
        self._size += sum(map(len, outputs))
        if self._made is not None:
            self._headers += [self._made[position]] * len(outputs)

    def _drop(self, mark: int) -> None:
        """Drop all outputs after the first ``mark``, which belong to an unfinished message."""
        self._size -= sum(map(len, self._outputs[mark:]))
        del self._outputs[mark:]
        del self._headers[mark:]

    def _fail(self, position: int, failure: Failure) -> None:
        self._maker.note_failures(self._thread, self._unit, position, (failure,), self._failed)

    # -- shipping -------------------------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        bounds = self._maker.bounds
        if len(self._outputs) >= bounds.entry_messages or self._size >= bounds.entry_bytes:
            return True
        return time.perf_counter() - self._began_s > bounds.delay_s

    def _ship_part(self, position: int) -> bool:
        """Send the current outputs while the message at ``position`` is running; earlier messages are done."""
        maker, state = self._maker, self._maker.state
        is_full = state is not None and state.session.is_full
        end = position if state is None or is_full else self._begin
        if end == self._begin and not (self._outputs or maker.tickets or is_full):
            self._began_s = time.perf_counter()
            return True
        is_sent = self._ship(end, Ticket())
        self._begin = end
        return is_sent

    def _ship(self, end: int, ticket: Ticket | None = None) -> bool:
        """Send the current outputs and settle the messages before ``end``; return False if the thread was stopped."""
        maker, changes = self._maker, None
        if maker.state is not None and (ticket is None or maker.state.session.is_full):
            changes, is_taken = maker.state.take(ends_unit=end == len(self._unit))
            if not is_taken:
                return False
        outputs, headers, size = self._outputs, self._headers, self._size
        if outputs and not maker.gate.enter(len(outputs), size):
            return False
        tickets, maker.tickets = maker.tickets, []
        if self._before is not None:
            tickets.append(self._before)
        failed = {position for position in self._failed if position < end}
        entries = entries_of(outputs, headers or None, size, self._calls.compression, maker.bounds)
        maker.send(
            Piece(
                self._source,
                self._unit,
                self._begin,
                end,
                failed,
                entries,
                tickets,
                len(outputs),
                size,
                changes,
                ticket,
            )
        )
        self._before = ticket
        self._failed -= failed
        self._outputs, self._headers, self._size = [], [], 0
        self._began_s = time.perf_counter()
        return True
