"""The supervisor of an instance: keeps it running until it is stopped, and reports why it is not running.

States: fetching the package, starting, running, waiting to restart, stopped. `status` works in each.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from ..errors import MagnetarError, RunNotYet, RunRefused
from ..instance.loading.requirements import Installed
from ..instance.spec import InstanceSpec
from ..instance.stats import format_error, now_ms
from ..tasks import Backoff, TaskSet, race, within
from ..wire.functions_pb2 import FunctionStatus, MetricsData
from ..wire.printable import summary
from .interface import Instance, Triggered

log = logging.getLogger(__name__)

FIRST_DELAY_S = 0.1  # delays before a restart: a killed process is restarted within 2 s, up to four times in a row
LONGEST_DELAY_S = 30.0
HEALTHY_S = 10.0  # after a run of this length the delays are reset
RESTART_TIMEOUT_S = 5.0
LEFTOVERS_MAX = 10
LONGEST_PAUSE_S = 5.0  # delay after an unexpected error in the supervisor itself


class Supervisor:
    """An instance across all its restarts.

    Attributes:
        leftovers: remains of earlier runs that could not be ended; shown in the status.
        installed: requirements used by this run; released when it has ended.
        death: how the last process died unexpectedly; empty if none did since the last manual restart.
        waits_for: reason that delays its start, shown in the status unless it has failed before; may be empty.
    """

    def __init__(
        self,
        key: str,
        start: Callable[[InstanceSpec], Coroutine[Any, Any, Instance]],
        make_spec: Callable[[Supervisor], Coroutine[Any, Any, InstanceSpec]],
        clock: Callable[[], float],
        predecessor: Supervisor | None,
    ) -> None:
        """Create a supervisor; `begin` starts the instance.

        Args:
            key: ``tenant/namespace/name:instance``.
            start: starts the instance, like `Runtime.start`.
            make_spec: fetches the package and returns the spec; called with this supervisor.
            clock: monotonic seconds.
            predecessor: supervisor that must end before this one starts.
        """
        self.leftovers: deque[str] = deque(maxlen=LEFTOVERS_MAX) if predecessor is None else predecessor.leftovers
        self.installed: Installed | None = None
        self.death = ""
        self.waits_for = ""
        self._key = key
        self._start = start
        self._make_spec = make_spec
        self._clock = clock
        self._predecessor = predecessor
        self._delay = Backoff(FIRST_DELAY_S, LONGEST_DELAY_S, settled_s=HEALTHY_S)
        self._instance: Instance | None = None
        self._failure = ""
        self._last_end: FunctionStatus.ExceptionInformation | None = None
        self._restarts = 0
        self._is_stopping = False
        self._grace_s = 0.0
        self._is_restarting = False
        self._wake = asyncio.Event()
        self._started = asyncio.Event()
        self._stop_order = asyncio.Event()
        self._tasks = TaskSet(f"supervisor of {key}")
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start the instance and keep it running."""
        self._task = self._tasks.keep(self._run, "run", longest_pause_s=LONGEST_PAUSE_S, on_failure=self._run_failed)

    def _run_failed(self, failure: BaseException) -> None:
        log.error("restarting the supervisor of instance %s after an unexpected error", self._key, exc_info=failure)
        self._failure = format_error(failure)
        self._last_end = _told_now(self._failure)

    async def _run(self) -> None:
        if self._predecessor is not None:
            await self._predecessor.ended()
            self._predecessor = None
        while not self._is_stopping:
            began_s = self._clock()
            reason = await self._run_once()
            if self._is_stopping:
                return
            if self._is_restarting:
                self._is_restarting = False
                continue
            self._failure = reason or "the instance ended unexpectedly"
            self._last_end = _told_now(self._failure)
            delay_s = self._delay.after(self._clock() - began_s)
            log.warning("instance %s ended, restarting in %.1f s: %s", self._key, delay_s, summary(self._failure))
            await within(delay_s, self._wake.wait())
            self._wake.clear()
            self._restarts += 1

    async def _run_once(self) -> str:
        """Start the instance and return why it ended."""
        try:
            spec = await race(self._make_spec(self), self._stop_order.wait())
            if not isinstance(spec, InstanceSpec) or self._is_stopping:
                return ""
            instance = self._instance = await self._start(spec)
            self._started.set()
            if self._is_stopping:
                # The stop request arrived during the start, when there was nothing to stop.
                await instance.stop(self._grace_s)
            reason = await instance.wait()
            self.death = "" if self._is_restarting else instance.death() or self.death
            return reason
        except (MagnetarError, OSError) as error:
            return f"{type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001  an error with one instance, ours or its runtime's, must not affect others
            return format_error(error)
        finally:
            self._note_leftover()
            self._instance = None
            self._started.clear()
            if self.installed is not None:
                self.installed.release()
                self.installed = None

    def _note_leftover(self) -> None:
        leftover = "" if self._instance is None else self._instance.leftover()
        if leftover:
            log.error("instance %s: %s", self._key, leftover)
            self.leftovers.append(leftover)

    async def stop(self, grace_s: float) -> None:
        """Stop the instance permanently; returns when it has ended.

        Cancellation: the instance still ends later.
        """
        self._is_stopping = True
        self._grace_s = grace_s
        self._stop_order.set()
        self._wake.set()
        if self._instance is not None:
            await self._instance.stop(grace_s)
        await self.ended()

    async def ended(self) -> None:
        """Wait until the instance and its supervisor have ended."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    @property
    def has_ended(self) -> bool:
        """Whether the instance and its supervisor have ended."""
        return self._task is None or self._task.done()

    async def restart(self, grace_s: float) -> None:
        """Restart the instance immediately; returns when it has started, or cannot be started soon."""
        self._failure = ""
        self._last_end = None
        if self._instance is not None:
            self._is_restarting = True
            await self._instance.stop(grace_s)
        self._wake.set()
        await within(RESTART_TIMEOUT_S, self._started.wait())

    async def begin_run(self, run_id: str) -> None:
        """Start a run of the instance.

        Raises:
            RunNotYet: the instance is about to start.
            RunRefused: the instance is down, is not a triggered one, or has an active run.
        """
        instance = self._instance
        if instance is None and self._failure:
            raise RunRefused(f"{self._key} is not running: {summary(self._failure)}")
        if instance is None:
            raise RunNotYet(f"{self._key} is starting")
        if not isinstance(instance, Triggered):
            raise RunRefused(f"{self._key} runs continuously and cannot be triggered")
        await instance.begin_run(run_id)

    async def status(self) -> FunctionStatus:
        """Return the instance's status."""
        instance = self._instance
        status = FunctionStatus() if instance is None else await instance.status()
        if not status.running and not status.failureException and not self._is_stopping:
            status.failureException = self._failure or self.waits_for
        past = [_told_now(leftover) for leftover in self.leftovers]
        if status.running:
            self._failure = ""
            # If the status is requested between two failures, it must still show the last one.
            if self._last_end is not None:
                past.append(self._last_end)
        status.numRestarts = self._restarts
        status.numSystemExceptions += len(past)
        status.latestSystemExceptions.extend(past)
        return status

    async def metrics(self) -> MetricsData:
        """Return the instance's counters; zeros while it is not running."""
        instance = self._instance
        return MetricsData() if instance is None else await instance.metrics()


def _told_now(text: str) -> FunctionStatus.ExceptionInformation:
    return FunctionStatus.ExceptionInformation(exceptionString=text, msSinceEpoch=now_ms())
