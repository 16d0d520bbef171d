"""Run one instance: open its inputs and outputs, run its function, and close them.

    input → inbox → function's thread → outcome → settlement → output, state store
      ↑                                               │
      └────────────── acknowledgements ───────────────┘

The `Settlement` of the processing guarantee determines the unit of work, the limits and the effect of the outcome
(`ports.py` has a table). This module has the common part: lock, loading, log topic, counters, start, stop and failure.

All code here runs on the client's event loop, except loading and the `Listener` methods, which the function's thread
calls and which only queue work and wake the loop, once per burst.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, cast

from ..client.client import AsyncClient
from ..errors import MagnetarError
from ..tasks import awaited_elsewhere, within
from ..wire.functions_pb2 import EFFECTIVELY_ONCE, MANUAL, FunctionDetails, FunctionStatus
from .acks.at_least_once import AtLeastOnce, AtMostOnce, Manual
from .arrangement import arrange
from .async_calls import AsyncCall
from .call_context import CallContext
from .core import InstanceCore
from .endpoint_settings import acks_first, compression_of
from .exact.effectively_once import EffectivelyOnce
from .function_context import Equipment, FunctionContext, instance_logger
from .function_thread import Calls, FunctionThread
from .instance_lock import InstanceLock
from .kind_calls import call_of
from .loading.loader import SHOWN_AFTER_S, Home, LoadedFunction, ProcessHome, load_function, load_serde
from .logs.file import InstanceLog
from .logs.topic import LogTopic
from .loop_watch import LoopWatch
from .output_headers import HeaderMaker, TracedHeaderMaker
from .ports import Endpoints, Settlement
from .run_time_limit import RunTimeLimit, Watched, run_time_limit_s
from .secrets import secrets_of
from .spec import InstanceSpec
from .stats import reason_of
from .tracing.opening import OpenTracing, open_tracing, tell_untraced
from .turns import Turns
from .values.endpoints import SchemaEndpoints, has_schemas
from .values.loading import Values, load_values

if TYPE_CHECKING:
    from .connectors.exact_sink import ExactSinkSettlement
    from .connectors.sink_settlement import SinkSettlement
    from .connectors.source_settlement import SourceSettlement

    ConnectorSettlement = SourceSettlement | SinkSettlement | ExactSinkSettlement

FAILURE_GRACE_S = 2.0  # time for the function to return when the instance cannot continue
SETTLE_S = 3.0  # time for work in flight when the instance is stopped
_TICK_S = 1.0
_CALLS_GRACE = 0.7
"""Share of the grace period for running async calls; the rest is for cancelling them."""


class Pipeline:
    """One instance: create it, call `run` once, and end it with `stop`.

    Attributes:
        stats: the instance's counters.
        is_running: whether messages are being processed.
        abandoned: whether the function did not return after a stop request.
        grace_s: time limit for that.
        core: state shared by its parts.
        settlement: handles the outcomes of processing.
        values: converters of the function's messages, once it is loaded.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        client: AsyncClient,
        home: Home,
        instance_log: InstanceLog,
        endpoints: Endpoints | None = None,
        turns: Turns | None = None,
    ) -> None:
        """Create the instance on the client's event loop.

        Args:
            spec: instance to run.
            client: connects to the broker; not closed here.
            home: imports the function.
            instance_log: log of the instance; not closed here.
            endpoints: opens inputs and outputs; by default the client, which supports topics only.
            turns: turns of the functions that share the process; None for a separate process.
        """
        self.is_running = False
        self.abandoned = False
        self.grace_s = FAILURE_GRACE_S
        self._opening_since_s: float | None = None
        self._home = home
        self._lock = InstanceLock(spec, client)
        self._log_topic = LogTopic(spec, instance_log) if spec.details.logTopic else None
        self._schemas: SchemaEndpoints | None = None
        if endpoints is None and has_schemas(spec.details):
            endpoints = self._schemas = SchemaEndpoints(client)
        self.core = InstanceCore(spec, client, endpoints or client, instance_log, self._lock.guard, turns)
        self.stats = self.core.stats
        self.stats.trouble = self._trouble
        self.settlement = settlement_of(self.core)
        self._watch = LoopWatch(partial(self.core.log.write, "WARNING"))
        self._thread = FunctionThread(f"function {spec.key}", self._load, self.settlement.maker, self, self.stats)
        self.values: Values | None = None
        self._tracing: OpenTracing | None = None
        self._calls: asyncio.Future[Calls] = self.core.loop.create_future()
        self._thread_ended = asyncio.Event()

    async def run(self) -> str:
        """Run until stopped, and return why the instance ended: empty after `stop`, otherwise the error.

        Cancellation: closes the instance without waiting for the function.
        """
        core = self.core
        try:
            self._thread.start()
            reason = await self._open()
            if reason is None:
                core.tasks.start(self._tick(), "tick", core.failed)
                core.tasks.start(self._lock.wait_failed(), "lock", core.failed)
                if (limit_s := run_time_limit_s(core.spec)) is not None:
                    core.tasks.start(self._limit(limit_s).watch(), "run-time limit", core.failed)
                self.settlement.start(self._thread.entrance())
                self.is_running = True
                reason = await asyncio.shield(core.ended)
            await self._wind_down()
            return reason
        finally:
            core.tasks.cancel()
            self._request_stop()
            await core.tasks.close()
            await self._close()

    async def _open(self) -> str | None:
        """Wait until the function is loaded, then open inputs and outputs; return why that failed, or None."""
        core, ended = self.core, self.core.ended
        await asyncio.wait((self._calls, ended), return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return ended.result()
        core.opening = f"lock of {core.spec.key}"
        self._opening_since_s = time.monotonic()
        try:
            await self._lock.acquire(ended)
            if ended.done():
                return ended.result()
            opening = core.tasks.start(self._open_topics(), "open", awaited_elsewhere)
            try:
                await asyncio.wait((opening, ended), return_when=asyncio.FIRST_COMPLETED)
            finally:
                opening.cancel()  # a stop does not wait for an unresponsive broker
                await asyncio.wait((opening,))
            if not opening.cancelled():
                opening.result()
        except MagnetarError as error:
            return f"{core.opening}: {type(error).__name__}: {error}"
        return ended.result() if ended.done() else None

    async def _open_topics(self) -> None:
        core = self.core
        if self._log_topic is not None:
            core.opening = f"log topic {core.spec.details.logTopic}"
            await self._log_topic.open(core.client, core.guard, core.encryption.letters)
        await self.settlement.open(self._calls.result())

    @property
    def is_busy(self) -> bool:
        """Whether the function's thread has work (from any thread)."""
        return self._thread.is_busy

    def _limit(self, limit_s: float) -> RunTimeLimit:
        """Return a watch that ends the instance when a message exceeds its time limit."""
        call = self._calls.result().batch_call
        watched: Watched = self._watch if isinstance(call, AsyncCall) else call.place

        def end(reason: str) -> None:
            self.core.call_died(f"a call exceeded its limit of {limit_s:g} s (runTimeLimitMs)")
            self.core.end(reason)

        return RunTimeLimit(limit_s, watched, lambda: self.core.thread_id, end)

    def status(self) -> FunctionStatus:
        """Return the instance's status, with counters and what prevents it from running (from any thread)."""
        status = self.stats.status()
        status.running = self.is_running
        if not status.running and not status.failureException:
            status.failureException = self._home.loading.trouble() or self._slow_opening()
        return status

    def _slow_opening(self) -> str:
        """Return what is being opened and for how long, if that is slow; otherwise an empty string."""
        since_s, ended = self._opening_since_s, self.core.ended
        if since_s is None or ended.done() or (passed_s := time.monotonic() - since_s) < SHOWN_AFTER_S:
            return ""
        return f"{self.core.opening}: not open after {passed_s:.0f} s; no reply yet"

    def stop(self, grace_s: float) -> None:
        """Make `run` end after the current message, or after ``grace_s`` without waiting for the function."""
        self.grace_s = grace_s
        self.core.end("")

    async def _wind_down(self) -> None:
        """Wait until the function has finished its message and its results are stored."""
        tasks = self.core.tasks
        tasks.cancel()
        self._request_stop()
        await tasks.close()  # from here on, no entries are put into the inbox
        if not await within(self.grace_s, self._thread_ended.wait()):
            self.abandoned = self.core.is_abandoned = True
            return
        with contextlib.suppress(MagnetarError):  # an input has failed, so nothing can be sent
            await within(SETTLE_S, self.settlement.settle(self._thread.unprocessed()))

    def _request_stop(self) -> None:
        self.is_running = False
        self._thread.grace_s = self.grace_s * _CALLS_GRACE
        self._thread.request_stop()
        self.settlement.request_stop()
        if self._schemas is not None:
            self._schemas.stop()

    async def _close(self) -> None:
        await self.settlement.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
        if self._log_topic is not None:
            await self._log_topic.close()
        await self._lock.close()  # last, because a successor may then start

    def _trouble(self) -> str:
        """Return what prevents the instance from continuing, or an empty string (from any thread)."""
        return self._lock.trouble() or self.settlement.trouble() or self._watch.trouble()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.stats.roll(time.monotonic())
            self.core.log.check_size()
            self.settlement.tick()
            self._watch.tick()

    # -- on the function's thread ---------------------------------------------------------------------------------

    def _load(self) -> Calls:
        """Load the function, and return its calls."""
        spec, settlement = self.core.spec, self.settlement
        self.core.thread_id = get_ident()
        self._home.enter_thread()
        self.core.encryption.load(self._home)
        if has_connector(spec.details):
            tell_untraced(self.core.log.write)
            return cast("ConnectorSettlement", settlement).load(self._home)
        loaded = load_function(spec, self._home)
        try:
            return self._calls_of(loaded)
        except BaseException:
            loaded.close()
            raise

    def _calls_of(self, loaded: LoadedFunction) -> Calls:
        """Create the function's calls, with its context and value converters."""
        spec, details, settlement = self.core.spec, self.core.spec.details, self.settlement
        values = self.values = load_values(details, self._home, loaded.call, self._schemas)
        opened = self._tracing = open_tracing(
            spec, self.core.hiding, self.core.log.write, is_alone=isinstance(self._home, ProcessHome)
        )
        context: FunctionContext | None = None
        session = None
        context_kind = CallContext if loaded.kind.is_async else FunctionContext
        if loaded.takes_context:
            make_serde = partial(load_serde, self._home)
            logger = instance_logger(spec)
            assert isinstance(settlement, AtLeastOnce | EffectivelyOnce)
            equipment = Equipment(
                steering=settlement.steering,
                secrets=secrets_of(spec, self.core.hiding.hide),
                end=lambda reason: self.core.mailbox.post(partial(self.core.end, reason)),
                serdes=values.inputs,
                carry=opened.carry if opened else None,
            )
            session = settlement.session()
            context = context_kind(spec, self.stats, settlement, logger, make_serde, session)
            context.equip(equipment)
        calls = Calls(
            batch_call=(opened.call_of if opened else call_of)(loaded, context, values.output),
            context=context,
            headers=(TracedHeaderMaker if opened else HeaderMaker)(details.sink.forwardSourceMessageProperty),
            has_output=bool(details.sink.topic),
            compression=compression_of(spec),
            serdes=values.inputs,
        )
        arrange(calls, loaded, settlement.maker, spec, self._watch)
        calls.batch_call.session = session
        if (limit_s := run_time_limit_s(spec)) is not None:
            calls.batch_call.is_watched = True
        if isinstance(calls.batch_call, AsyncCall):
            calls.batch_call.limit_s = limit_s
        return calls

    def loaded(self, calls: Calls) -> None:
        """Pass the loaded function's calls to the event loop."""
        self.core.mailbox.post(partial(self._calls.set_result, calls))

    def reported(self, texts: Sequence[str]) -> None:
        """Log failures of messages."""
        self.core.log.write_all("ERROR", texts)

    def ended(self, error: BaseException | None) -> None:
        """Pass the end of the function's thread, and its error, to the event loop."""
        self._home.leave_thread()
        # Not on the event loop, because formatting the function's exceptions may run its code.
        self.core.mailbox.post(partial(self._thread_has_ended, "" if error is None else reason_of(error)))

    def _thread_has_ended(self, reason: str) -> None:
        self._thread_ended.set()
        self.core.end(reason)


def has_connector(details: FunctionDetails) -> bool:
    """Return whether an instance is a source or a sink."""
    return details.componentType in (FunctionDetails.SOURCE, FunctionDetails.SINK)


def import_connectors() -> None:
    """Import the modules for sources and sinks, which take 0.8 MB and are not needed elsewhere.

    A process with a busy event loop calls this on a thread, before it creates the first connector.
    """
    from .connectors import exact_sink, sink_settlement, source_settlement  # noqa: F401


def settlement_of(core: InstanceCore) -> Settlement:
    """Return the settlement of a function's processing guarantee."""
    details = core.spec.details
    if details.componentType == FunctionDetails.SINK:
        from .connectors.exact_sink import ExactSinkSettlement
        from .connectors.sink_settlement import AtMostOnceSinkSettlement, SinkSettlement

        if details.processingGuarantees == EFFECTIVELY_ONCE:
            return ExactSinkSettlement(core)
        return AtMostOnceSinkSettlement(core) if acks_first(core.spec) else SinkSettlement(core)
    if details.componentType == FunctionDetails.SOURCE:
        from .connectors.source_settlement import SourceSettlement

        return SourceSettlement(core)
    if details.processingGuarantees == EFFECTIVELY_ONCE:
        return EffectivelyOnce(core)
    if acks_first(core.spec):
        return AtMostOnce(core)
    if details.processingGuarantees == MANUAL or not details.autoAck:
        return Manual(core)
    return AtLeastOnce(core)
