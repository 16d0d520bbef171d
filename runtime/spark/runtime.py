"""Functions as Spark jobs, seen from the worker: one host process for all, started when it is needed.

Design: an instance is a function that may be triggered, whether or not a host runs at the moment. A host that has had
nothing to do for a while is ended, and the next run starts another. A host that dies takes with it only what it was
busy with: those instances end, their supervisors start them again after a pause, and a run that was under way is begun
again; the jobs keep their plans where that repeats nothing. An instance that is stopped cancels its run.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import ClosedError, InvalidConfig, RunNotYet, RunRefused, SparkFailed
from ...instance.loading.package_path import REQUIREMENTS, requirements_of
from ...instance.spec import InstanceSpec
from ...instance.stats import InstanceStats
from ...spark.jobs.progress import RunProgress
from ...spark.readiness import check_ready
from ...spark.session import SessionConfig, sweep
from ...tasks import TaskSet
from ...wire.functions_pb2 import FunctionStatus, MetricsData
from .backlog import Backlog
from .host_config import config_to_text
from .host_process import Event, HostProcess
from .runs import Run

IDLE_CHECKS = 10
"""How often the time after which an idle host is ended is looked at within that time."""
RUNS_MAX = 10_000
"""Latest runs that are remembered, of functions that may be gone."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SparkConfig:
    """How Spark functions run on a worker.

    Attributes:
        data_dir: Spark's files and log are kept below.
        master: ``local``, ``local[N]``, ``local[*]`` or ``spark://host:port``.
        heap: of the driver's JVM, as ``-Xmx`` takes it.
        driver_host: where executors of a cluster reach this machine.
        settings: of Spark; they win over ours.
        idle_s: a host that has had nothing to do for so long is ended; it takes some seconds to start one again.
        program: starts a host; a test may have another.
    """

    data_dir: Path
    master: str = "local[*]"
    heap: str = "1g"
    driver_host: str = "127.0.0.1"
    settings: Mapping[str, str] = field(default_factory=dict)
    idle_s: float = 600.0
    program: tuple[str, ...] = (sys.executable, "-P", "-m", "magnetar.runtime.spark.host")

    def __post_init__(self) -> None:
        if not self.idle_s > 0:
            raise InvalidConfig(f"idle_s {self.idle_s} must be positive")
        self.session()

    def session(self) -> SessionConfig:
        """Return the settings of the host's session."""
        return SessionConfig(
            directory=self.data_dir / "spark",
            master=self.master,
            app_name="magnetar functions",
            heap=self.heap,
            driver_host=self.driver_host,
            settings=self.settings,
            log_file=self.data_dir / "logs" / "spark.log",
        )


class SparkInstance:
    """A function that may be triggered."""

    def __init__(self, spec: InstanceSpec, number: int, runtime: SparkRuntime) -> None:
        """Prepare; the runtime adds it to the host."""
        self.spec = spec
        self.number = number
        self.host: HostProcess | None = None
        self._runtime = runtime
        self._stats = InstanceStats(time.monotonic())
        self._backlog = Backlog(spec)
        self._is_loaded = False
        self._is_ready = False
        self._is_stopping = False
        self._let_go = asyncio.Event()
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def is_busy(self) -> bool:
        """Whether it needs its host now."""
        run = self._runtime.run_of(self.spec)
        return self.host is not None and (not self._is_loaded or (run is not None and run.is_active))

    def added(self, host: HostProcess) -> None:
        """Note that a host was told to load it."""
        self.host = host
        self._is_loaded = False
        self._let_go.clear()

    async def status(self) -> FunctionStatus:  # noqa: D102  documented in ports.Instance
        status = self._stats.status()
        status.running = self._is_ready and not self._ended.done()
        if self._ended.done():
            status.failureException = self._ended.result()
        elif not self._is_ready and requirements_of(self.spec.package) is not None:
            status.failureException = f"waits for pip, which installs the package's {REQUIREMENTS}, and is loaded then"
        run = self._runtime.run_of(self.spec)
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
        """Begin to work the backlog off.

        Raises:
            RunNotYet: the function is being loaded, or ends.
            RunRefused: another run is under way.
        """
        if not self._is_ready or self._is_stopping or self._ended.done():
            raise RunNotYet(f"{self.spec.function_name} is being loaded")
        run = self._runtime.run_of(self.spec)
        if run is not None and run.progress.run_id == run_id:
            return  # asked again, because the first answer was lost
        if run is not None and run.is_active:
            progress = run.progress
            raise RunRefused(
                f"run {progress.run_id} is under way: {progress.stage}, {progress.tasks_done} of"
                f" {progress.tasks_total} tasks done; wait until it has ended, or stop the function"
            )
        run = Run(RunProgress(run_id=run_id, stage="planning"))
        self._runtime.remember(self.spec, run)
        await self._do(run)

    async def resume(self, run: Run) -> None:
        """Begin a run again whose host has died, unless that was done too often."""
        if run.resume(self._stats):
            await self._do(run)

    async def _do(self, run: Run) -> None:
        try:
            if self.host is None or not self.host.is_alive:
                await self._runtime.add(self)
        except (ClosedError, OSError) as error:
            run.fail(f"{type(error).__name__}: {error}", self._stats)
            return
        if self.host is not None and run.is_active:
            self.host.tell({"command": "run", "id": self.number, "run": run.progress.run_id})

    def _take_up(self, run_id: str) -> None:
        """Go on with a run whose worker is gone; one whose end was told here is over."""
        known = self._runtime.run_of(self.spec)
        is_known = known is not None and (known.is_active or known.progress.run_id == run_id)
        if run_id and not is_known and not self._is_stopping and self.host is not None:
            _log.warning("%s: run %s, which another worker has begun, goes on here", self.spec.key, run_id)
            self._runtime.remember(self.spec, Run(RunProgress(run_id=run_id, stage="planning")))
            self.host.tell({"command": "run", "id": self.number, "run": run_id})

    def take_event(self, event: Event) -> None:
        """Take what the host says of this function."""
        match event["event"]:
            case "loaded":
                self._is_loaded = self._is_ready = True
                self._take_up(event["unfinished"])
            case "progress":
                run = self._runtime.run_of(self.spec)
                if run is not None and run.is_active:
                    run.take(RunProgress(**event["progress"]), self._stats)
                    if not run.is_active:
                        self._backlog.run_ended(run.progress.lag)
            case "ended":
                self.host = None
                self._end(event["reason"])
            case "removed":
                self.host = None
                self._let_go.set()

    def host_ended(self, reason: str, *, is_failure: bool) -> None:
        """Note that the host is gone; what a failure met at work has to begin again, the rest does not notice."""
        was_busy = is_failure and self.is_busy
        self.host = None
        self._let_go.set()
        run = self._runtime.run_of(self.spec)
        if run is not None:
            run.last_death = reason
        if was_busy and not self._is_stopping:
            self._end(reason)

    def _end(self, reason: str) -> None:
        self._backlog.close()
        self._runtime.forget(self.number)
        self._let_go.set()
        if not self._ended.done():
            self._ended.set_result(reason)

    async def stop(self, grace_s: float) -> None:
        """End the instance and its run; a job that does not stop within ``grace_s`` takes the host with it."""
        if self._ended.done():
            return
        self._is_stopping = True
        run = self._runtime.run_of(self.spec)
        host = self.host
        if host is not None:
            if run is not None and run.is_active:
                host.tell({"command": "cancel", "id": self.number, "run": run.progress.run_id})
            host.tell({"command": "remove", "id": self.number})
            try:
                async with asyncio.timeout(grace_s):
                    await self._let_go.wait()
            except TimeoutError:
                reason = f"{self.spec.key} did not stop within {grace_s:g} s after it was told to"
                _log.error("the host of Spark functions is killed: %s", reason)
                host.kill(reason)
                await self._let_go.wait()
        if run is not None:
            run.cancel(self._stats)
        self._end("")

    def leftover(self) -> str:  # noqa: D102  documented in ports.Instance
        return ""  # what does not stop is ended with the host

    async def wait(self) -> str:  # noqa: D102
        return await asyncio.shield(self._ended)


class SparkRuntime:
    """Starts instances in a host process, which it starts and ends as needed.

    Attributes:
        config: of the host.
    """

    def __init__(self, config: SparkConfig, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare; nothing is started before the first instance.

        Args:
            config: of the host.
            clock: rising seconds, for the end of an idle host.
        """
        self.config = config
        self._clock = clock
        self._host: HostProcess | None = None
        self._instances: dict[int, SparkInstance] = {}
        self._runs: dict[str, Run] = {}
        self._numbers = itertools.count(1)
        self._starting = asyncio.Lock()
        self._used_s = clock()
        self._tasks = TaskSet("Spark functions")
        self._watching: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def host_pid(self) -> int:
        """Of the host, 0 without one."""
        return 0 if self._host is None else self._host.pid

    async def warm_up(self) -> None:
        """Remove what hosts of an earlier worker left behind."""
        await asyncio.to_thread(sweep, self.config.session().directory)

    async def start(self, spec: InstanceSpec) -> SparkInstance:
        """Start an instance: its function is loaded, and a run whose host died is begun again.

        Raises:
            InvalidConfig, SparkFailed: this machine cannot run Spark functions.
            ClosedError: the worker is stopping.
        """
        await asyncio.to_thread(check_ready, self.config.master, None, self.config.session().directory)
        instance = SparkInstance(spec, next(self._numbers), self)
        try:
            await self.add(instance)
        except OSError as error:
            raise SparkFailed(f"no process for Spark functions: {error}") from error
        run = self.run_of(spec)
        if run is not None and run.is_active:
            await instance.resume(run)
        return instance

    async def add(self, instance: SparkInstance) -> None:
        """Have an instance's function loaded by the host, which is started if there is none.

        Raises:
            ClosedError: the worker is stopping.
            OSError: no process could be made.
        """
        async with self._starting:
            if self._is_closed:
                raise ClosedError("the worker is stopping")
            if self._host is None or not self._host.is_alive:
                await self._start_host()
            assert self._host is not None
            self._instances[instance.number] = instance
            self._used_s = self._clock()
            instance.added(self._host)
            self._host.tell({"command": "add", "id": instance.number, "spec": instance.spec.to_json()})

    async def _start_host(self) -> None:
        session = self.config.session()
        for directory in (session.directory, session.log_file.parent if session.log_file else session.directory):
            directory.mkdir(parents=True, exist_ok=True)
        host = HostProcess(self._take_event, self._host_ended)
        await host.start(self.config.program, config_to_text(session))
        self._host = host
        if self._watching is None:
            self._watching = self._tasks.keep(self._watch, "end of an idle Spark host")

    def _take_event(self, event: Event) -> None:
        self._used_s = self._clock()
        instance = self._instances.get(event["id"])
        if instance is not None:
            instance.take_event(event)

    def _host_ended(self, host: HostProcess, reason: str) -> None:
        if self._host is host:
            self._host = None
        lost = [instance for instance in self._instances.values() if instance.host is host]
        if not host.was_told_to_end:
            _log.error("%s; %d of %d functions were busy in it", reason, sum(one.is_busy for one in lost), len(lost))
        for instance in lost:
            instance.host_ended(reason, is_failure=not host.was_told_to_end)

    def run_of(self, spec: InstanceSpec) -> Run | None:
        """Return the latest run of a function, None if there was none since this worker started."""
        return self._runs.get(_identity(spec))

    def remember(self, spec: InstanceSpec, run: Run) -> None:
        """Make a run the latest of its function."""
        self._runs.pop(_identity(spec), None)
        self._runs[_identity(spec)] = run
        if len(self._runs) > RUNS_MAX:
            oldest = next((name for name, held in self._runs.items() if not held.is_active), None)
            if oldest is not None:
                del self._runs[oldest]

    def forget(self, number: int) -> None:
        """Drop an instance that has ended."""
        self._instances.pop(number, None)
        self._used_s = self._clock()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.config.idle_s / IDLE_CHECKS)
            await self.end_if_idle()

    async def end_if_idle(self) -> None:
        """End the host if no function needs it, and none has for a while."""
        async with self._starting:
            host = self._host
            if host is None or any(instance.is_busy for instance in self._instances.values()):
                return
            if self._clock() - self._used_s >= self.config.idle_s:
                _log.info("the host of Spark functions ends: no run for %g s", self.config.idle_s)
                await host.end()

    async def close(self) -> None:  # noqa: D102  documented in ports.Runtime
        self._is_closed = True
        await self._tasks.close()
        if self._host is not None:
            await self._host.end()


def _identity(spec: InstanceSpec) -> str:
    """Return what names a function over updates, and not one of the same name that was created later."""
    return f"{spec.key}@{spec.metadata.functionUuid}"
