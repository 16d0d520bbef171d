"""Run user code on a thread: take input entries, and call the function on their messages in steps.

Design: the thread and the event loop exchange entries and results, never single messages. The `Maker` of the instance's
settlement determines the unit of work and the use of its results. The thread reads entries, calls the function in steps
of about `STEP_S`, measured on the function itself, and checks after each step whether it must stop.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, cast

from ..api.serde import SerDe
from ..client.config import Compression
from ..client.consumers.received import ReceivedEntry
from .batch_call import BatchCall, Blame, Failure, Results
from .function_context import FunctionContext
from .output_headers import HeaderMaker
from .stats import InstanceStats, format_error, now_ms
from .stopping import InstanceStopping
from .unit import Unit
from .values.writers import follow

STEP_S = 0.005
STEP_MESSAGES_MAX = 1000
IDLE_S = 0.5
_FIRST_STEP = 1  # the function's speed is unknown yet


class Source(Protocol):
    """The source of entries, as seen by the function's thread."""

    @property
    def topic(self) -> str:
        """Name of the input."""

    @property
    def serde(self) -> SerDe:
        """Decoder of the input's messages."""


Item = tuple[Source, ReceivedEntry]
Steps = Iterator[tuple[int, Results, float]]


@dataclass(slots=True)
class Calls:
    """A loaded function, and how to call it.

    Attributes:
        batch_call: calls the function.
        context: the function's context; None if it takes none.
        headers: creates the metadata of outputs.
        has_output: whether there is an output topic.
        compression: compression of outputs.
        serdes: decoder of each input topic.
        process: processes entries instead of the settlement's maker, or None.
        steps: calls the function on a unit instead of `FunctionThread.steps`, or None.
        produce: creates outputs, called repeatedly until the thread is stopped; None if entries are processed one after
            the other.
        is_busy: returns whether calls started by `produce` are running (from any thread); None without `produce`.
        wake: called when an entry arrives or the thread is stopped (from any thread); None if not needed.
        idle: called about every `IDLE_S` while no entries arrive; None if not needed.
        close: called on the thread when it ends; None if not needed.
    """

    batch_call: BatchCall
    context: FunctionContext | None
    headers: HeaderMaker
    has_output: bool
    compression: Compression
    serdes: dict[str, SerDe]
    process: Processing | None = None
    steps: Stepping | None = None
    produce: Callable[[FunctionThread], None] | None = None
    wake: Callable[[], None] | None = None
    is_busy: Callable[[], bool] | None = None
    idle: Callable[[], None] | None = None
    close: Callable[[], None] | None = None


class Maker(Protocol):
    """The part of a settlement on the function's thread: creates units from entries, and outcomes from results."""

    def process(self, thread: FunctionThread, calls: Calls, source: Source, entry: ReceivedEntry) -> None:
        """Process an entry, optionally together with queued ones.

        Raises:
            InstanceStopping: the instance is stopping, and the entry was not processed.
            Exception: the instance cannot continue.
        """


Processing = Callable[["FunctionThread", Calls, Source, ReceivedEntry], None]
"""Signature of `Maker.process`."""
Stepping = Callable[["FunctionThread", Source, Unit], Steps]
"""Signature of `FunctionThread.steps`, without the calls."""


class Listener(Protocol):
    """Receives the thread's events, on the thread itself."""

    def loaded(self, calls: Calls) -> None:
        """Receive the loaded function's calls; entries may arrive from now on."""

    def reported(self, texts: Sequence[str]) -> None:
        """Log texts about failures."""

    def ended(self, error: BaseException | None) -> None:
        """Handle the end of the thread, with the error if the function cannot continue."""


class FunctionThread(threading.Thread):
    """A thread that runs one function.

    Attributes:
        inbox: entries to process, with their source; None ends the thread.
        is_stopping: whether the thread ends after the current step, leaving queued entries unprocessed.
        stats: the instance's counters.
        grace_s: time for running calls to finish when the thread is stopped, if they can be cancelled.
    """

    def __init__(
        self, name: str, load: Callable[[], Calls], maker: Maker, listener: Listener, stats: InstanceStats
    ) -> None:
        """Create the thread without starting it.

        Args:
            name: thread name.
            load: imports and creates the function, on this thread.
            maker: processes entries.
            listener: receives events of the thread.
            stats: the instance's counters.
        """
        super().__init__(name=name, daemon=True)
        self.inbox: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self.is_stopping = False
        self.stats = stats
        self.grace_s = 0.0
        self._load = load
        self._maker = maker
        self._listener = listener
        self._at_hand: Item | None = None
        self._next: Item | None = None
        self._step = _FIRST_STEP
        self._wake: Callable[[], None] | None = None
        self._has_calls: Callable[[], bool] | None = None

    def run(self) -> None:
        """Load the function and call it until stopped."""
        error: BaseException | None = None
        close: Callable[[], None] | None = None
        try:
            calls = self._load()
            close = calls.close
            process = calls.process or self._maker.process
            self._wake = calls.wake
            self._has_calls = calls.is_busy
            self._listener.loaded(calls)
            while calls.produce is not None and not self.is_stopping:
                calls.produce(self)
            while (item := self._take(calls.idle)) is not None:
                self._at_hand = item
                process(self, calls, *item)
                self._at_hand = None
        except InstanceStopping:
            pass  # the current entry is redelivered
        except BaseException as raised:  # noqa: BLE001  even SystemExit in a user task must end the instance with a reason
            error = raised
        if close is not None:
            try:
                close()
            except BaseException as raised:  # noqa: BLE001  any error must be reported to the instance
                error = error or raised
        self._listener.ended(error)

    @property
    def is_busy(self) -> bool:
        """Whether an entry is being processed or queued (from any thread)."""
        if self._at_hand is not None or self._next is not None or not self.inbox.empty():
            return True
        return self._has_calls is not None and self._has_calls()

    def request_stop(self) -> None:
        """Stop the thread once the function returns (from any thread)."""
        self.is_stopping = True
        self._put(None)

    def entrance(self) -> Callable[[Item], None]:
        """Return a callable that queues entries, once the function is loaded (from any thread)."""
        return self.inbox.put if self._wake is None else self._put

    def _put(self, item: Item | None) -> None:
        self.inbox.put(item)
        if self._wake is not None:
            self._wake()

    def unprocessed(self) -> list[Item]:
        """Return the unprocessed entries, after the thread has ended."""
        items = [item for item in (self._at_hand, self._next) if item is not None]
        while not self.inbox.empty():
            item = self.inbox.get()
            if item is not None:
                items.append(item)
        return items

    # -- for makers -----------------------------------------------------------------------------------------------

    def _take(self, idle: Callable[[], None] | None) -> Item | None:
        """Wait for the next entry; return None if the thread must end."""
        item, self._next = self._next, None
        if item is None:
            item = self.inbox.get() if idle is None else self._wait(idle)
        if item is not None and self.is_stopping:
            self._next = item
            return None
        return item

    def _wait(self, idle: Callable[[], None]) -> Item | None:
        while True:
            with suppress(queue.Empty):
                return self.inbox.get(timeout=IDLE_S)
            idle()  # outside the handler, so that queue.Empty does not become the context of errors

    def poll(self, wait_s: float = 0.0) -> Item | None:
        """Return the next entry that is queued or arrives in time, or None."""
        try:
            item = self.inbox.get_nowait() if wait_s <= 0.0 else self.inbox.get(timeout=wait_s)
        except queue.Empty:
            return None
        if item is None:
            self.inbox.put(None)  # seen again once the unit is done
        return item

    def take_over(self) -> None:
        """Make the maker responsible for the current entry, even if `Maker.process` raises."""
        self._at_hand = None

    def hand_over(self, item: Item) -> None:
        """Make a polled entry the current one, which remains unprocessed if `Maker.process` raises."""
        self._at_hand = item

    def put_back(self, item: Item) -> None:
        """Make a polled entry the next one to be processed."""
        self._next = item

    def read(self, entry: ReceivedEntry) -> Sequence[int] | None:
        """Open an entry, count its messages, and return the indexes of messages to process, or None for all.

        Raises:
            ProtocolError: the entry is damaged.
        """
        payloads = entry.payloads
        # Messages removed by compaction are empty; only then must the metadata be checked.
        indexes = entry.wanted_indexes() if entry.ack_set or b"" in payloads else None
        self.stats.total.received += len(payloads) if indexes is None else len(indexes)
        return indexes

    def damaged(self, text: str, shown: str) -> None:
        """Count an unreadable entry with ``text`` as the reason, and log ``shown``."""
        self.stats.system_exception(text, now_ms())
        self._listener.reported((shown,))

    def steps(self, calls: Calls, source: Source, unit: Unit) -> Steps:
        """Call the function on the messages of a unit, in steps, until all are done or the thread must stop.

        Yields:
            for each step, the position of its first message, the results, and the duration in seconds; pass results and
            duration to `count`.
        """
        if calls.steps is not None:
            yield from calls.steps(self, source, unit)
            return
        count, position = len(unit), 0
        while position < count and not self.is_stopping:
            end = min(position + self.step_of(calls), count)
            results, busy_s = self.call(calls, source, unit, position, end)
            yield position, results, busy_s
            position = end

    def step_of(self, calls: Calls) -> int:
        """Return the number of messages for the next step."""
        return calls.batch_call.step or self._step

    def call(self, calls: Calls, source: Source, unit: Unit, position: int, end: int) -> tuple[Results, float]:
        """Call the function on the messages from ``position`` to before ``end``; return results and seconds."""
        began_s = time.perf_counter()
        context, batch_call = calls.context, calls.batch_call
        messages = unit.messages if end - position == len(unit) else unit.messages[position:end]
        if context is not None:
            context.enter(batch_call.place, unit, position)
        follow(source.serde, unit, position)
        batch_call.follow(unit, position)
        results = batch_call.run(messages, source.serde)
        return results, time.perf_counter() - began_s

    def count(self, results: Results, busy_s: float) -> None:
        """Count a step, and choose the size of the next one: steps grow slowly and shrink immediately."""
        messages = results.messages
        self.stats.count_run(messages, len(results.failures), busy_s, now_ms())
        fitting = int(STEP_S / busy_s * messages) if busy_s > 0 else STEP_MESSAGES_MAX
        self._step = max(1, min(fitting, max(self._step, messages) * 8, STEP_MESSAGES_MAX))

    def refused(self, text: str, count: int = 1) -> None:
        """Count and log rejected messages."""
        self.stats.system_exception(text, now_ms(), count)
        self._listener.reported((text,))

    def failed(self, failure: Failure, message: str) -> str:
        """Count and log the failure of one message, named by ``message``, and return its traceback."""
        return self.all_failed((failure,), (message,))[0]

    def all_failed(self, failures: Sequence[Failure], messages: Iterable[str]) -> list[str]:
        """Count and log the failures of messages, given their names, and return the tracebacks."""
        error: BaseException | None = None
        text, time_ms = "", now_ms()
        tracebacks: list[str] = []
        reports: list[str] = []
        for failure, message in zip(failures, messages, strict=True):
            if failure.error is error:  # one call with several messages has failed
                shown = f" with the same {type(error).__name__}"
            else:
                error, text = failure.error, format_error(failure.error)
                shown = f": {text}"
            count = self.stats.user_exception if failure.blame is Blame.USER else self.stats.system_exception
            count(text, time_ms)
            tracebacks.append(text)
            reports.append(f"{message} failed{shown}")
        self._listener.reported(reports)
        return tracebacks


def collect(results: Results, outputs: list[bytes], headers: list[bytes], made: list[bytes] | None, base: int) -> None:
    """Append the outputs of a step to lists.

    Args:
        results: results of the step.
        outputs: list for the return values.
        headers: list for their attributes, if any.
        made: attributes of the unit's outputs by position, or None.
        base: position of the first message of the step.
    """
    if results.counts is not None:
        if made is not None:
            for header, count in zip(made[base:], results.counts, strict=False):
                headers += [header] * count
        outputs += cast(list[bytes], results.outputs)
        return
    if made is not None:
        ours = made[base : base + len(results.outputs)]
        headers += [header for header, output in zip(ours, results.outputs, strict=True) if output is not None]
    outputs += [output for output in results.outputs if output is not None]
