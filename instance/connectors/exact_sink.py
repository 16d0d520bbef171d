"""Run a sink with EFFECTIVELY_ONCE: each input partition has one reader, and is written and acknowledged in order.

Records that were written but not acknowledged before a crash are redelivered in the same order, and only to the next
reader of the partition, because each partition has a lock. The sink ensures that repeated writes have no effect
(`Connector.not_effectively_once`). A rejected record is stored in the dead-letter topic before later records are
acknowledged; a crash between the two stores it twice.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from ...client.consumers.received import ReceivedEntry
from ...errors import ClosedError
from ..acks.publisher import Publisher, Ticket
from ..core import InstanceCore
from ..exact.activation import Activation
from ..exact.committer import ExactState
from ..exact.effectively_once import EffectivelyOnce
from ..exact.entries import EntryMaker
from ..exact.results import ResultMaker
from ..exact.work import Result, position_in
from ..function_thread import Calls, FunctionThread, Item, Source
from ..gate import Gate
from ..identity import table_of
from ..loading.loader import Home
from ..publish_request import PublishRequest
from ..state.session import StateSession
from ..state.writer import StateLink
from ..stats import now_ms
from ..stopping import InstanceStopping
from ..unit import HeldEntries, Unit
from .loaded_sink import LoadedSink
from .pauses import Pauses
from .session import Unwanted
from .sink import Intake, SinkCall
from .writing import Outcome

_LOOK_S = 0.2
_STATE_GRACE_S = 1.0  # time for the state store to reply to a sink that is stopping


class ExactSinkMaker(ResultMaker):
    """A `function_thread.Maker` that creates a result for each entry written by a sink."""

    def __init__(
        self,
        ship: Callable[[Sequence[Result]], None],
        skip: Callable[[Activation, ReceivedEntry], None],
        store: Callable[[Sequence[PublishRequest]], None],
    ) -> None:
        """Create a maker of a sink's results.

        Args:
            ship: see `ResultMaker`.
            skip: see `ResultMaker`.
            store: stores dead letters and state changes durably before it returns.
        """
        # A sink has no outputs: there are no entries to create, and the gate has nothing to limit.
        super().__init__(EntryMaker("", "NONE", lambda topic: ()), False, Gate(1, 1), ship, skip)
        self._store = store
        self._sink: SinkCall
        self._pauses: Pauses
        self._held: HeldEntries
        self._intake = Intake()
        self._thread: FunctionThread | None = None

    def use(self, sink: SinkCall, pauses: Pauses, held: HeldEntries) -> None:
        """Set the sink, its paused inputs and the held entries."""
        self._sink = sink
        self._pauses = pauses
        self._held = held

    def process(self, thread: FunctionThread, calls: Calls, source: Source, entry: ReceivedEntry) -> None:
        """Process an entry together with queued ones."""
        self._thread = thread
        thread.take_over()
        self._intake.put_back((source, entry))
        while self._intake:
            self.go_on()
            item = self._intake.pop()
            if not self._pauses.park(item, self._held):
                self._process(thread, cast(Activation, item[0]), item[1])

    def go_on(self) -> None:
        """Process entries of resumed inputs, and skip those of lost partitions."""
        while self._thread is not None and (item := self._pauses.parked(_is_over)) is not None:
            self._process(self._thread, cast(Activation, item[0]), item[1], joins=False)

    def skip_rest(self) -> None:
        """Skip the waiting entries."""
        rest = self._pauses.all_parked()
        while self._intake:
            rest.append(self._intake.pop())
        for source, entry in rest:
            self._skip(cast(Activation, source), entry)

    def _process(
        self, thread: FunctionThread, activation: Activation, entry: ReceivedEntry, *, joins: bool = True
    ) -> None:
        if activation.is_over:
            self._skip(activation, entry)
            return
        unit, entries, _ = self._intake.gather(thread, activation, entry, self._sink.batching, joins=joins)
        outcome = Outcome()
        done = 0
        session = self._sink.session
        session.is_wanted = lambda: not activation.is_over
        try:
            done = self._write(thread, activation, unit, entries, outcome)
        except (InstanceStopping, Unwanted):
            pass  # unfinished entries are redelivered to this or another instance
        finally:
            session.is_wanted = _always
            done = done or _done(unit, entries, outcome.written)
            self._ship([Result(activation, one, position_in(one)) for one in entries[:done]])
            for one in entries[done:]:
                self._skip(activation, one)

    def _write(
        self, thread: FunctionThread, source: Source, unit: Unit, entries: Sequence[ReceivedEntry], outcome: Outcome
    ) -> int:
        """Write a unit and return the number of its entries; `outcome` is complete even if the sink fails."""
        if thread.is_stopping:
            raise InstanceStopping
        began_s = time.perf_counter()
        try:
            self._sink.write(unit, source.serde, outcome)
        finally:
            failed = len(outcome.refused)
            busy_s = time.perf_counter() - began_s
            thread.stats.count_run(len(outcome.written) + failed, failed, busy_s, now_ms())
            self._store([self._sink.refuse(thread, unit, position, error) for position, error in outcome.refused])
            outcome.written += [position for position, _ in outcome.refused]
        return len(entries)


def _is_over(item: Item) -> bool:
    return cast(Activation, item[0]).is_over


def _always() -> bool:
    return True


def _done(unit: Unit, entries: Sequence[ReceivedEntry], positions: Sequence[int]) -> int:
    """Return the number of leading entries whose positions are all in ``positions``."""
    done = set(positions)
    unfinished = {id(entry) for position, (entry, _) in enumerate(unit.places()) if position not in done}
    return next((number for number, entry in enumerate(entries) if id(entry) in unfinished), len(entries))


class ExactSinkSettlement(EffectivelyOnce):
    """Settlement that writes records to a sink effectively once."""

    maker: ExactSinkMaker

    def __init__(self, core: InstanceCore) -> None:
        """Create the settlement without opening anything."""
        self._link: StateLink | None = None
        super().__init__(core)
        self._publisher = Publisher(core)
        self._tickets: list[Ticket] = []  # tickets of messages published since the last unit
        self._loaded = LoadedSink(core, self)

    def _make_maker(self) -> ExactSinkMaker:
        return ExactSinkMaker(self._ship, self._skip_soon, self._store)

    def _open_state(self) -> ExactState | None:
        return None  # a sink has no outputs to commit; its state is stored as in other sinks

    def session(self) -> StateSession | None:
        """Return the sink's state, or None without a state store."""
        spec = self._core.spec
        if not spec.state_url:
            return None
        self._link = StateLink(spec.state_store, table_of(spec.metadata), spec.key, self._core.report)
        return self._link.session

    # -- on the sink's thread -------------------------------------------------------------------------------------

    def load(self, home: Home) -> Calls:
        """Create the sink, which is opened once the instance has its lock."""
        calls = self._loaded.load(home, self._loaded.rules(), self.session())
        self.maker.use(self._loaded.call, self._loaded.pauses, self.held)
        calls.idle, calls.close = self._be_idle, partial(self._close_sink, calls.close)
        return calls

    def _close_sink(self, close: Callable[[], None] | None) -> None:
        self.maker.skip_rest()
        if close is not None:
            close()

    def _be_idle(self) -> None:
        self.maker.go_on()
        self._loaded.call.idle()
        self.maker.go_on()
        self._store([])

    def publish(self, request: PublishRequest) -> None:
        """Accept a message for any topic."""
        self._tickets.append(self._publisher.publish(request))

    def _store(self, requests: Sequence[PublishRequest]) -> None:
        """Store messages and state changes, and return when they are durable.

        Raises:
            InstanceStopping: the instance is stopping; some messages may be stored.
            MagnetarError: a message was rejected.
        """
        try:
            for request in requests:
                self.publish(request)
        except ClosedError as error:
            raise InstanceStopping from error
        tickets, self._tickets = self._tickets, []
        for ticket in tickets:
            stored = threading.Event()
            ticket.on_done = lambda _, stored=stored: stored.set()
            while not ticket.is_done and not stored.wait(_LOOK_S):
                if self._loaded.is_stopping():
                    raise InstanceStopping
            if ticket.error is not None:
                raise ticket.error
        self._store_changes()

    def _store_changes(self) -> None:
        link = self._link
        if link is None:
            return
        changes, is_taken = link.take(ends_unit=True)
        if not is_taken:
            raise InstanceStopping
        if changes is None:
            return
        stored = threading.Event()
        failure: list[BaseException] = []

        def done(error: BaseException | None) -> None:
            if error is not None:
                failure.append(error)
            stored.set()

        link.store(changes, done)
        stored.wait()  # closing the connection ends this wait
        if failure:
            raise failure[0]

    def resumed(self, topic: str) -> asyncio.Event:
        """Return an event that is set while entries may be taken from a partition."""
        return self._loaded.pauses.resumed(topic)

    # -- on the event loop ----------------------------------------------------------------------------------------

    def start(self, process: Callable[[Item], None]) -> None:
        """Start taking input."""
        self._loaded.start()
        super().start(process)

    def trouble(self) -> str:
        """Return what prevents the instance from continuing, or an empty string."""
        return self._loaded.trouble() or super().trouble() or (self._link.trouble() if self._link is not None else "")

    def request_stop(self) -> None:
        """End all waits of the sink's thread."""
        self._loaded.request_stop()
        if self._link is not None:
            self._core.loop.call_later(_STATE_GRACE_S, self._link.stop_function)
        super().request_stop()

    async def close(self) -> None:
        """Abandon work in progress, and close inputs and outputs."""
        await self._publisher.close()
        if self._link is not None:
            await asyncio.to_thread(self._link.close)
        await super().close()
