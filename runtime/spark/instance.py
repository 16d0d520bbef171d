"""The instance of a Spark function in the worker: it may be triggered, whether or not a host runs at the moment."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from ...errors import ClosedError, RunNotYet, RunRefused
from ...instance.loading.loader import REQUIREMENTS, requirements_of
from ...instance.spec import InstanceSpec
from ...instance.stats import InstanceStats
from ...spark.jobs.progress import RunProgress
from ...wire.functions_pb2 import FunctionStatus, MetricsData
from .backlog import Backlog
from .host_process import Event, HostProcess
from .runs import Run, Runs

_log = logging.getLogger(__name__)


class SparkInstance:
    """A function that may be triggered."""

    def __init__(
        self,
        spec: InstanceSpec,
        number: int,
        runs: Runs,
        add: Callable[[SparkInstance], Awaitable[None]],
        forget: Callable[[int], None],
    ) -> None:
        """Prepare; the runtime adds it to the host.

        Args:
            spec: of the function.
            number: of the instance in its host.
            runs: the latest of all functions.
            add: has the function loaded by a host that is alive.
            forget: called with the number when the instance has ended.
        """
        self.spec = spec
        self.number = number
        self.host: HostProcess | None = None
        self._runs = runs
        self._add = add
        self._forget = forget
        self._stats = InstanceStats(time.monotonic())
        self._backlog = Backlog(spec)
        self._is_loaded = False
        self._is_ready = False
        self._is_stopping = False
        self._released = asyncio.Event()
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def is_busy(self) -> bool:
        """Whether it needs its host now."""
        run = self._runs.of(self.spec)
        return self.host is not None and (not self._is_loaded or (run is not None and run.is_active))

    def added(self, host: HostProcess) -> None:
        """Note that a host was told to load it."""
        self.host = host
        self._is_loaded = False
        self._released.clear()

    async def status(self) -> FunctionStatus:  # noqa: D102  documented in interface.Instance
        status = self._stats.status()
        status.running = self._is_ready and not self._ended.done()
        if self._ended.done():
            status.failureException = self._ended.result()
        elif not self._is_ready and requirements_of(self.spec.package) is not None:
            status.failureException = f"waits for pip, which installs the package's {REQUIREMENTS}, and is loaded then"
        run = self._runs.of(self.spec)
        status.run.CopyFrom(FunctionStatus.Run(stage="idle", lag=-1) if run is None else run.record())
        if run is None or not run.is_active or run.progress.lag < 0:
            status.run.lag = await self._backlog.entries()
        return status

    async def metrics(self, reset: bool = False) -> MetricsData:  # noqa: D102
        self._stats.roll(time.monotonic())
        metrics = self._stats.metrics()
        if reset:
            self._stats.reset()
        return metrics

    async def begin_run(self, run_id: str) -> None:
        """Begin a run over the backlog.

        Raises:
            RunNotYet: the function is being loaded, or ends.
            RunRefused: another run is under way.
        """
        if not self._is_ready or self._is_stopping or self._ended.done():
            raise RunNotYet(f"{self.spec.function_name} is being loaded")
        run = self._runs.of(self.spec)
        if run is not None and run.progress.run_id == run_id:
            return  # asked again, because the first answer was lost
        if run is not None and run.is_active:
            progress = run.progress
            raise RunRefused(
                f"run {progress.run_id} is under way: {progress.stage}, {progress.tasks_done} of"
                f" {progress.tasks_total} tasks done; wait until it has ended, or stop the function"
            )
        run = Run(RunProgress(run_id=run_id, stage="planning"))
        self._runs.remember(self.spec, run)
        await self._start_run(run)

    async def resume(self, run: Run) -> None:
        """Begin a run again whose host has died, unless that was done too often."""
        if run.resume(self._stats):
            await self._start_run(run)

    async def _start_run(self, run: Run) -> None:
        try:
            if self.host is None or not self.host.is_alive:
                await self._add(self)
        except (ClosedError, OSError) as error:
            run.fail(f"{type(error).__name__}: {error}", self._stats)
            return
        if self.host is not None and run.is_active:
            self.host.tell({"command": "run", "id": self.number, "run": run.progress.run_id})

    def _take_up(self, run_id: str) -> None:
        """Go on with a run whose worker is gone; one whose end was told here is over."""
        known = self._runs.of(self.spec)
        is_known = known is not None and (known.is_active or known.progress.run_id == run_id)
        if run_id and not is_known and not self._is_stopping and self.host is not None:
            _log.warning("%s: run %s, which another worker has begun, goes on here", self.spec.key, run_id)
            self._runs.remember(self.spec, Run(RunProgress(run_id=run_id, stage="planning")))
            self.host.tell({"command": "run", "id": self.number, "run": run_id})

    def take_event(self, event: Event) -> None:
        """Handle an event of the host about this function."""
        match event["event"]:
            case "loaded":
                self._is_loaded = self._is_ready = True
                self._take_up(event["unfinished"])
            case "progress":
                run = self._runs.of(self.spec)
                if run is not None and run.is_active:
                    run.take(RunProgress(**event["progress"]), self._stats)
                    if not run.is_active:
                        self._backlog.run_ended(run.progress.lag)
            case "ended":
                self.host = None
                self._end(event["reason"])
            case "removed":
                self.host = None
                self._released.set()

    def host_ended(self, reason: str, *, is_failure: bool) -> None:
        """Note that the host is gone: an instance that was busy in it ends, and its supervisor starts another."""
        was_busy = is_failure and self.is_busy
        self.host = None
        self._released.set()
        run = self._runs.of(self.spec)
        if run is not None:
            run.last_death = reason
        if was_busy and not self._is_stopping:
            self._end(reason)

    def _end(self, reason: str) -> None:
        self._backlog.close()
        self._forget(self.number)
        self._released.set()
        if not self._ended.done():
            self._ended.set_result(reason)

    async def stop(self, grace_s: float) -> None:
        """End the instance and its run; a job that does not stop within ``grace_s`` takes the host with it."""
        if self._ended.done():
            return
        self._is_stopping = True
        run = self._runs.of(self.spec)
        host = self.host
        if host is not None:
            if run is not None and run.is_active:
                host.tell({"command": "cancel", "id": self.number, "run": run.progress.run_id})
            host.tell({"command": "remove", "id": self.number})
            try:
                async with asyncio.timeout(grace_s):
                    await self._released.wait()
            except TimeoutError:
                reason = f"{self.spec.key} did not stop within {grace_s:g} s after it was told to"
                _log.error("the host of Spark functions is killed: %s", reason)
                host.kill(reason)
                await self._released.wait()
        if run is not None:
            run.cancel(self._stats)
        self._end("")

    def leftover(self) -> str:  # noqa: D102  documented in interface.Instance
        return ""  # what does not stop is ended with the host

    async def wait(self) -> str:  # noqa: D102
        return await asyncio.shield(self._ended)
