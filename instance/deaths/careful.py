"""Call a function carefully after its process has ended during a call, to find the message that ends it.

`record` describes the search. A run after an unexpected end is careful: it starts with calls of single messages, and
continues with calls of the usual size. Once it has processed as many messages as an instance may have held, it is as
fast as any other run.

In a process shared by functions, a death is attributed only to a call that had the process to itself (`Turns`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from ..batch_call import Blame, Failure, Results
from ..core import InstanceCore
from ..function_thread import Calls, FunctionThread, Source, Steps
from ..stopping import ProcessEnded
from ..turns import Alone
from ..unit import HELD_MESSAGES_MAX, Unit
from .journal import CallJournal
from .record import DeathRecord, Message, Tried, ranges_of

SUFFIX = ".calls"
"""File name suffix of the journal, which is next to the instance's log."""
ALONE_MESSAGES = 1000
ALONE_S = 5.0
"""Number of messages processed one by one at the start, and time limit for that."""
SUSPECTS_MAX = HELD_MESSAGES_MAX + HELD_MESSAGES_MAX // 2
"""Maximum number of messages that may have been in flight; instances take whole entries."""


class CarefulCalls:
    """Records an instance's calls, on the function's thread except for `died` and `close`.

    Attributes:
        is_on: whether calls are recorded; if so, use `call` or `in_flight` for each call.
    """

    def __init__(self, core: InstanceCore, retries: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Create the recorder; call `open` before use.

        Args:
            core: the instance's core.
            retries: maximum number of retries of a message.
            clock: monotonic clock, in seconds.
        """
        self.is_on = False
        self._core = core
        core.call_died = self.died
        self._retries = retries
        self._clock = clock
        self._journal = CallJournal(core.spec.log_file.with_suffix(SUFFIX))
        self._record = DeathRecord()
        self._suspects: set[Message] = set()
        self._seen: set[Message] = set()
        self._called = 0
        self._began_s: float | None = None

    def open(self) -> None:
        """Determine how the previous run ended, and start recording if it ended during a call."""
        core = self._core
        try:
            self.is_on = self._take_over()
            self._journal.start(self._record, is_recording=self.is_on)
        except OSError as error:
            core.report("WARNING", f"cannot record which messages end the process: {error}")
        self._suspects = self._record.suspects()

    def _take_over(self) -> bool:
        """Attribute the end of the previous run to a message, and return whether this run must be careful."""
        spec, found = self._core.spec, self._journal.read()
        if found is None:
            return False
        self._record = found.record
        shares = self._core.turns is not None
        reason = found.reason or spec.died_of or ("the worker's process ended" if shares else "")
        if not reason:  # the process ended together with its worker
            return bool(found.calls or self._record.deaths or self._record.tried)
        culprit = self._record.died(reason, found.calls)
        if culprit is not None:
            self._report(culprit)
        return True

    def _report(self, culprit: Message) -> None:
        topic, ledger, entry, index = culprit
        tried = self._record.tried[culprit]
        self._core.system_failed(
            f"message {ledger}:{entry}:{index} of {topic} ended the process in attempt {tried.times} of"
            f" {self._retries + 1}: {tried.reason}"
        )

    def tried(self) -> dict[Message, int]:
        """Return how often each message has ended the process, excluding the attempt counted when it is given up."""
        return {message: tried.times - (tried.times > self._retries) for message, tried in self._record.tried.items()}

    # -- calls ----------------------------------------------------------------------------------------------------

    def tries(self, unit: Unit, position: int) -> int:
        """Return how often the message at a position has ended the process."""
        tried = self._record.tried.get(_message(unit, position)) if self._record.tried else None
        return 0 if tried is None else tried.times

    def given_up(self, unit: Unit, position: int) -> ProcessEnded | None:
        """Return why the message at a position has been given up, or None."""
        if not self._record.tried:
            return None
        message = _message(unit, position)
        tried = self._record.tried.get(message)
        if tried is None:
            return None
        self._seen.add(message)
        return _failure(tried) if tried.times > self._retries else None

    def is_alone(self, unit: Unit, position: int) -> bool:
        """Return whether no other message may be in flight with the one at a position."""
        if self._called < ALONE_MESSAGES:
            now_s = self._clock()
            if self._began_s is None:
                self._began_s = now_s
            if now_s - self._began_s < ALONE_S:
                return True
        return bool(self._suspects) and _message(unit, position) in self._suspects

    def steps(self, thread: FunctionThread, calls: Calls, source: Source, unit: Unit) -> Steps:
        """Call the function like `FunctionThread.steps`, recording the messages in flight."""
        position = 0
        while position < len(unit) and not thread.is_stopping:
            if (error := self.given_up(unit, position)) is not None:
                yield position, failed(error), 0.0
                position += 1
                continue
            end = self._end_of_step(unit, position, position + thread.step_of(calls))
            results, busy_s = self.call(thread, calls, source, unit, position, end)
            yield position, results, busy_s
            position = end

    def _end_of_step(self, unit: Unit, position: int, end: int) -> int:
        if not self.is_on:
            return min(end, len(unit))
        if self.is_alone(unit, position):
            return position + 1
        later = range(position + 1, min(end, len(unit)))
        return next((one for one in later if self.is_alone(unit, one)), later.stop)

    def call(
        self, thread: FunctionThread, calls: Calls, source: Source, unit: Unit, position: int, end: int
    ) -> tuple[Results, float]:
        """Call the function like `FunctionThread.call`, recording the messages in flight."""
        with self.in_flight(unit, position, end):
            return thread.call(calls, source, unit, position, end)

    @contextmanager
    def in_flight(self, unit: Unit, position: int, end: int) -> Iterator[None]:
        """Record that messages of a unit are in flight."""
        if not self.is_on:
            yield
            return
        ranges = ranges_of(_message(unit, one) for one in range(position, end))
        turns = self._core.turns
        number = self._journal.begin(ranges, is_alone=turns is None)
        alone: Alone | None = None
        if turns is not None:
            if end - position == 1 and self.is_alone(unit, position):
                change = partial(self._journal.change, number, ranges)
                alone = lambda is_alone: change(is_alone=is_alone)  # noqa: E731
            turns.begin(alone)
        try:
            yield
        finally:
            if turns is not None:
                turns.end(alone)
            self._journal.end(number)
            self._count(end - position)

    def _count(self, messages: int) -> None:
        """Count messages whose call has ended, and stop recording when all suspects have been processed."""
        self._called += messages
        if self.is_on and self._called >= SUSPECTS_MAX << self._record.periods:
            self.is_on = False
            self._record.passed(self._seen)
            try:
                self._journal.start(self._record, is_recording=False)
            except OSError as error:
                self._core.report("WARNING", f"cannot record which messages end the process: {error}")

    # -- the end --------------------------------------------------------------------------------------------------

    def died(self, reason: str) -> None:
        """Attribute the end of this run to the messages in flight (from any thread)."""
        self._journal.died(reason)

    def close(self, *, is_abandoned: bool) -> None:
        """Record that the instance was stopped (from any thread).

        Args:
            is_abandoned: whether a call is still running; it is blamed if the process now ends without a stop request.
        """
        if is_abandoned and self._core.turns is None:
            self._journal.leave()
        else:
            self._journal.stop()


def failed(error: ProcessEnded) -> Results:
    """Return the result of a message that was given up."""
    return Results([None], [Failure(0, error, Blame.USER)])


def _failure(tried: Tried) -> ProcessEnded:
    times = "once" if tried.times == 1 else f"{tried.times} times"
    return ProcessEnded(f"{tried.reason} ({times} during a call with this message)")


def _message(unit: Unit, position: int) -> Message:
    entry, index = unit.locate(position)
    return (entry.topic, *entry.position, index)
