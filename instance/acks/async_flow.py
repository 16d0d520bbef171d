"""Run async functions: many concurrent calls, whose results are sent in the order in which the calls finish.

    inbox → calls, in order, one per key at a time → results available now → one piece for all of them

Design: the function's thread is driven by its own event loop, which entries wake up. Each entry is a separate unit.
Design: entries wake up the event loop that drives the function's thread. Each entry is a separate unit. Finished
results are collected and sent together, after at most `FLUSH_S`. One piece carries all outputs, and its members settle
runs of positions in any order. If one call hangs, its entry is acknowledged except for that message.

Limits: running calls are limited by the concurrency limit, messages waiting for a call by the settlement's held
messages, and outputs by the gate of the `PieceMaker`. The thread does not block at the gate, because running calls must
continue; it only starts no more calls until there is room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from ...client.consumers.received import ReceivedEntry
from ...errors import ProtocolError
from ..async_calls import AsyncCall, CallRunner, OneCall, close_loop, current_call, key_of
from ..function_thread import Calls, FunctionThread, Source
from ..loop_watch import LoopWatch
from ..publish_request import MESSAGE_BYTES_MAX
from ..stats import now_ms
from ..unit import Unit
from .dead_letters import text_of
from .pieces import (
    UNIT_BYTES_MAX,
    UNIT_MESSAGES_MAX,
    OpenInput,
    Piece,
    PieceMaker,
    entries_of,
    too_large,
)
from .publisher import Ticket

FLUSH_S = 0.005
_RETRY_S = 0.005  # interval between checks of the gate


@dataclass(slots=True, eq=False)
class _Work:
    """An entry whose messages are being processed.

    Attributes:
        source: the entry's input.
        unit: the entry's messages.
        made: attributes of the outputs, one per message; None if no message has any.
    """

    source: OpenInput
    unit: Unit
    made: list[bytes] | None


class _Batch:
    """The outputs of several calls, sent together.

    Attributes:
        payloads: outputs.
        headers: attributes of each output; empty if no output has any.
        size: total size of the outputs in bytes.
    """

    def __init__(self, calls: Sequence[OneCall]) -> None:
        self.payloads = [output for call in calls for output in call.outputs]
        self.headers: list[bytes] = []
        self.size = sum(call.size for call in calls)
        if any(call.owner.made is not None for call in calls):
            for call in calls:
                made = call.owner.made
                self.headers += [b"" if made is None else made[call.position]] * len(call.outputs)


class AsyncFlow:
    """Runs an async function; `run` is a `function_thread.Calls.produce`."""

    def __init__(
        self,
        maker: PieceMaker,
        calls: Calls,
        loop: asyncio.AbstractEventLoop,
        limit: int,
        watch: LoopWatch,
        *,
        in_order: bool,
    ) -> None:
        """Create a flow for one function.

        Args:
            maker: the settlement's maker, which receives the pieces.
            calls: calls of the function.
            loop: the function's event loop, closed by `close`.
            limit: maximum number of concurrent calls.
            watch: detects calls that block the loop.
            in_order: whether each topic's messages are processed one at a time.
        """
        self._calls = calls
        self._maker = maker
        self._loop = loop
        self._limit = limit
        self._watch = watch
        self._in_order = in_order
        self._woken = asyncio.Event()
        self._is_woken = False
        self._thread: FunctionThread
        self._runner: CallRunner
        self._ended: list[OneCall] = []
        self._flush_due: asyncio.TimerHandle | None = None
        self._flushed_s = 0.0
        self._parts: dict[OneCall, Ticket] = {}  # last ticket of each generator that has sent outputs
        self._timers: dict[OneCall, asyncio.TimerHandle] = {}

    @property
    def is_busy(self) -> bool:
        """Whether calls are running or results are unsent (from any thread)."""
        has_begun = hasattr(self, "_runner")  # `run` creates it, on its thread
        return bool(self._ended) or (has_begun and self._runner.is_busy)

    def wake(self) -> None:
        """Make the loop check for entries and for a stop request (from any thread)."""
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._woken.set)

    def keeps(self, ticket: Ticket) -> bool:
        """Make the publishing call wait for a ticket; return False if that call has already ended."""
        call = current_call()
        if call is None or call.is_over:
            return False
        call.tickets.append(ticket)
        return True

    def run(self, thread: FunctionThread) -> None:
        """Process entries until the thread is stopped, then end the running calls.

        Raises:
            BaseException: a call raised an exception that ends the instance.
        """
        self._thread = thread
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # raised by a task that the function started, outside any call
            if self._maker.careful is not None:  # before `close` cancels the calls in flight
                self._maker.careful.died(f"a task started by the function raised {text_of(error)}")
            raise
        if self._runner.fatal is not None:
            raise self._runner.fatal

    def close(self) -> None:
        """Close the loop, on the function's thread."""
        close_loop(self._loop)

    async def _serve(self) -> None:
        thread = self._thread
        call = cast(AsyncCall, self._calls.batch_call)
        careful = self._maker.careful
        self._runner = CallRunner(call, self._limit, self._call_ended, self._output_made, self._is_void, careful)
        self._maker.keeps = self.keeps
        with self._watch.watching(self._loop):
            while not thread.is_stopping and self._runner.fatal is None:
                item = thread.poll()
                if item is not None:
                    self._take(*item)
                    await asyncio.sleep(0)
                    continue
                self._is_woken = False
                self._woken.clear()
                if (item := thread.poll()) is not None:  # arrived before the flag was cleared
                    self._take(*item)
                elif not thread.is_stopping:
                    await self._woken.wait()
            await self._runner.end(thread.grace_s)
            self._flush()

    # -- input ----------------------------------------------------------------------------------------------------

    def _take(self, source: Source, entry: ReceivedEntry) -> None:
        """Create calls for an entry's messages."""
        maker, runner = self._maker, self._runner
        if maker.void and maker.void.pop(id(entry), None) is not None:
            return
        try:
            indexes = self._thread.read(entry)
        except ProtocolError as error:
            maker.drop_damaged(self._thread, source, entry, error)
            return
        if indexes is not None and not indexes:
            maker.drop(source, entry)
            return
        if maker.state is not None:  # reads for this entry must not be older than the entry
            self._flush()
            if not self._ended:
                maker.state.take(ends_unit=True)
        unit = Unit()
        unit.add(entry, indexes)
        made = self._calls.headers.of_unit(unit) if self._calls.has_output else None
        work = _Work(cast(OpenInput, source), unit, made)
        for position, (_, index) in enumerate(unit.places()):
            key = entry.topic if self._in_order else key_of(entry, index)
            runner.add(OneCall(unit, position, key, source.serde, work))
        runner.start()

    def _is_void(self, call: OneCall) -> bool:
        """Return whether a seek moved the call's input while it waited; the broker redelivers the message if needed."""
        return bool(self._maker.void) and id(call.unit.entries[0]) in self._maker.void

    # -- results --------------------------------------------------------------------------------------------------

    def _call_ended(self, call: OneCall) -> None:
        timer = self._timers.pop(call, None)
        if timer is not None:
            timer.cancel()
        if call.is_given_up:
            self._parts.pop(call, None)
            if self._runner.fatal is not None:
                self.wake()
            return
        self._refuse_large(call)
        self._ended.append(call)
        if self._flush_due is None:
            wait_s = max(0.0, self._flushed_s + FLUSH_S - self._loop.time())
            self._flush_due = self._loop.call_later(wait_s, self._flush)

    def _refuse_large(self, call: OneCall) -> None:
        if self._calls.has_output and (large := _large(call)) is not None:
            call.fail(too_large(large))

    def _flush(self) -> None:
        """Send the results of finished calls."""
        if self._flush_due is not None:
            self._flush_due.cancel()
            self._flush_due = None
        self._flushed_s = self._loop.time()
        ended = self._ended
        if not ended:
            return
        batch = _Batch(ended if self._calls.has_output else ())
        if batch.payloads and not self._maker.gate.enter(len(batch.payloads), batch.size, waits=False):
            self._runner.pause(True)
            self._flush_due = self._loop.call_later(_RETRY_S, self._flush)
            return
        self._ended = []
        self._settle(ended, batch)
        self._runner.pause(False)

    def _settle(self, ended: list[OneCall], batch: _Batch) -> None:
        """Send outputs and settle their messages."""
        state, changes = self._maker.state, None
        if state is not None:
            changes, is_taken = state.take(ends_unit=True)
            if not is_taken:
                return  # stopping: the inputs are redelivered
        failed: dict[Unit, set[int]] = {}
        for call in ended:
            if call.failure is not None:
                missing = failed.setdefault(call.unit, set())
                self._maker.note_failures(self._thread, call.unit, 0, (call.failure,), missing)
        waits: dict[Unit, dict[int, list[Ticket]]] = {}
        for call in ended:
            if call in self._parts:
                call.tickets.append(self._parts.pop(call))
            if call.tickets:
                waits.setdefault(call.unit, {})[call.position] = call.tickets
        outputs = entries_of(
            batch.payloads, batch.headers or None, batch.size, self._calls.compression, self._maker.bounds
        )
        work: _Work = ended[0].owner
        members = []
        for one, begin, end in _runs(ended):
            missing = failed.get(one.unit, set()).intersection(range(begin, end))
            tickets = waits.get(one.unit, {})
            its = [(at, ticket) for at in range(begin, end) for ticket in tickets.get(at, ())] if tickets else ()
            members.append(Piece(one.source, one.unit, begin, end, missing, [], [], 0, 0, waits=its))
        messages = len(batch.payloads)
        self._maker.send(
            Piece(work.source, work.unit, 0, 0, set(), outputs, [], messages, batch.size, changes, members=members)
        )
        busy_s = sum(call.busy_s for call in ended)
        called = sum(not call.is_skipped for call in ended)
        self._thread.stats.count_run(called, sum(map(len, failed.values())), busy_s, now_ms())

    # -- outputs of running generators ---------------------------------------------------------------------------

    def _output_made(self, call: OneCall) -> Awaitable[None] | None:
        """Handle a new output of a generator; passed to `AsyncCall.process` as ``made``."""
        if len(call.outputs) < UNIT_MESSAGES_MAX and call.size < UNIT_BYTES_MAX:
            if call not in self._timers:
                self._timers[call] = self._loop.call_later(self._maker.bounds.delay_s, self._ship_late, call)
            return None
        return self._ship_part(call)

    def _ship_late(self, call: OneCall) -> None:
        """Send a generator's recent outputs if no more have followed."""
        self._timers.pop(call, None)
        if _large(call) is None and call.outputs and not self._try_ship_part(call):
            self._timers[call] = self._loop.call_later(_RETRY_S, self._ship_late, call)

    async def _ship_part(self, call: OneCall) -> None:
        """Send a generator's outputs, waiting until the gate has room."""
        timer = self._timers.pop(call, None)
        if timer is not None:
            timer.cancel()
        while not self._try_ship_part(call):  # noqa: ASYNC110  another thread opens the gate
            await asyncio.sleep(_RETRY_S)
        await asyncio.sleep(0)  # a generator that never waits must not block the others

    def _try_ship_part(self, call: OneCall) -> bool:
        if not self._calls.has_output:
            call.take_outputs()
            return True
        if (large := _large(call)) is not None:
            raise too_large(large)
        batch = _Batch((call,))
        if not self._maker.gate.enter(len(batch.payloads), batch.size, waits=False):
            return False
        call.take_outputs()
        tickets, call.tickets = call.tickets, []
        if call in self._parts:
            tickets.append(self._parts[call])
        ticket = self._parts[call] = Ticket()
        entries = entries_of(
            batch.payloads, batch.headers or None, batch.size, self._calls.compression, self._maker.bounds
        )
        at, work = call.position, call.owner
        self._maker.send(
            Piece(
                work.source, work.unit, at, at, set(), entries, tickets, len(batch.payloads), batch.size, ticket=ticket
            )
        )
        return True


def _large(call: OneCall) -> bytes | None:
    """Return the first output of a call that exceeds the message size limit, or None."""
    if call.size <= MESSAGE_BYTES_MAX:
        return None
    return next((output for output in call.outputs if len(output) > MESSAGE_BYTES_MAX), None)


def _runs(ended: Sequence[OneCall]) -> Iterator[tuple[_Work, int, int]]:
    """Yield runs of consecutive positions: the entry, the first position, and the position after the last."""
    positions: dict[_Work, list[int]] = {}
    for call in ended:
        positions.setdefault(call.owner, []).append(call.position)
    for work, its in positions.items():
        its.sort()
        begin = 0
        for index in range(1, len(its) + 1):
            if index == len(its) or its[index] != its[index - 1] + 1:
                yield work, its[begin], its[index - 1] + 1
                begin = index
