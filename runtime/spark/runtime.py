"""The runtime for Spark functions: one host process per worker, started on demand.

Design: an instance is a function that can be triggered whether or not a host is running. An idle host is ended after a
while, and the next run starts another. A host that dies only affects instances that were busy in it: these end, their
supervisors restart them after a pause, and active runs are restarted; jobs keep their plans if this does not repeat
work. Stopping an instance cancels its run.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import time
from collections.abc import Callable

from ...errors import ClosedError, SparkFailed
from ...instance.spec import InstanceSpec
from ...instance.stats import now_ms
from ...spark.session import check_ready, sweep
from ...tasks import TaskSet, within
from ..process.channel import ProcessChannel, execute
from ..process.forked import how_it_ended
from .host_config import SparkConfig, config_to_text
from .instance import Event, Runs, SparkInstance

IDLE_CHECKS = 10
"""Number of idle checks within the time after which an idle host is ended."""
END_TIMEOUT_S = 4.5
"""Time for a host to end its JVM after an end request, in seconds; after that both are killed."""
_log = logging.getLogger(__name__)


class HostProcess:
    """A host process, from its start to its exit.

    Attributes:
        channel: connection to the process, which may still be importing; a closed channel ignores commands.
        was_told_to_end: whether an end was requested, so that it is not a failure.
    """

    def __init__(
        self,
        channel: ProcessChannel,
        take_event: Callable[[Event], None],
        has_ended: Callable[[HostProcess, str], None],
    ) -> None:
        """Create a host process, and start listening to it.

        Args:
            channel: connection to the process.
            take_event: called with the host's events, on the event loop.
            has_ended: called once, after all events, when the process has ended, with the reason.
        """
        self._take_event = take_event
        self._has_ended = has_ended
        self.channel = channel
        self._tasks = TaskSet("Spark host")
        self._reason = ""
        self._is_ending = False
        self.was_told_to_end = False
        self._listening = self._tasks.start(self._listen(), "events")

    @property
    def is_alive(self) -> bool:
        """Whether the host accepts commands."""
        return self.channel.is_open and not self._is_ending

    async def _listen(self) -> None:
        try:
            damage = await self.channel.listen(self._take)
            if damage:
                self.kill(damage)
        finally:
            reason = f"the host process of Spark functions {how_it_ended(await self.channel.wait())}"
            self._has_ended(self, self._reason or reason)

    def _take(self, body: bytes) -> None:
        """Handle an event; an error in one event must not stop the others."""
        try:
            event = json.loads(body)
            if event["event"] == "failed":
                self._reason = event["reason"]
            else:
                self._take_event(event)
        except Exception:  # noqa: BLE001  it is logged, and affected instances are notified when the host ends
            _log.exception("cannot handle an event from the Spark function host: %r", body[:200])

    def kill(self, reason: str) -> None:
        """Kill the host; `has_ended` is called with the reason."""
        self._reason = reason
        self._is_ending = True
        self.channel.kill()

    async def end(self) -> None:
        """End the host cleanly, or forcibly after `END_TIMEOUT_S`; returns when it has ended."""
        self._is_ending = self.was_told_to_end = True
        self.channel.close()
        if not await within(END_TIMEOUT_S, asyncio.shield(self._listening)):
            self.kill(f"the host did not end within {END_TIMEOUT_S:g} s")
            await self._listening


class SparkRuntime:
    """Starts instances in a host process, which it starts and ends as needed.

    Attributes:
        config: settings of the host.
    """

    def __init__(
        self,
        config: SparkConfig,
        clock: Callable[[], float] = time.monotonic,
        time_ms: Callable[[], int] = now_ms,
    ) -> None:
        """Create a runtime; the first instance starts the host.

        Args:
            config: settings of the host.
            clock: monotonic seconds, for ending an idle host.
            time_ms: wall clock that determines when runs are due.
        """
        self.config = config
        self._clock = clock
        self._time_ms = time_ms
        self._host: HostProcess | None = None
        self._instances: dict[int, SparkInstance] = {}
        self._runs = Runs()
        self._numbers = itertools.count(1)
        self._starting = asyncio.Lock()
        self._used_s = clock()
        self._tasks = TaskSet("Spark functions")
        self._watching: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def host_pid(self) -> int:
        """Process id of the host, or 0."""
        return 0 if self._host is None else self._host.channel.pid

    async def warm_up(self) -> None:
        """Remove files left behind by hosts of an earlier worker."""
        await asyncio.to_thread(sweep, self.config.session().directory)

    async def start(self, spec: InstanceSpec) -> SparkInstance:
        """Start an instance: load its function, and restart a run whose host died.

        Raises:
            InvalidConfig, SparkFailed: this machine cannot run Spark functions.
            ClosedError: the worker is stopping.
        """
        await asyncio.to_thread(check_ready, self.config.master, None, self.config.session().directory)
        instance = SparkInstance(spec, next(self._numbers), self._runs, self.add, self.forget, self._time_ms)
        try:
            await self.add(instance)
        except OSError as error:
            raise SparkFailed(f"cannot start a process for Spark functions: {error}") from error
        run = self._runs.of(spec)
        if run is not None and run.is_active:
            await instance.resume(run)
        return instance

    async def add(self, instance: SparkInstance) -> None:
        """Load an instance's function in the host, starting the host if needed.

        Raises:
            ClosedError: the worker is stopping.
            OSError: the process could not be created.
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
            command = {"command": "add", "id": instance.number, "spec": instance.spec.to_json()}
            self._host.channel.tell(command | {"ahead": self.config.starts_ahead})

    async def _start_host(self) -> None:
        session = self.config.session()
        for directory in (session.directory, session.log_file.parent if session.log_file else session.directory):
            directory.mkdir(parents=True, exist_ok=True)
        channel = await execute(lambda number: [*self.config.program, str(number), config_to_text(session)])
        self._host = HostProcess(channel, self._take_event, self._host_ended)
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
            _log.error("%s; %d of its %d functions were busy", reason, sum(one.is_busy for one in lost), len(lost))
        for instance in lost:
            instance.host_ended(reason, is_failure=not host.was_told_to_end)

    def forget(self, number: int) -> None:
        """Remove an instance that has ended."""
        self._instances.pop(number, None)
        self._used_s = self._clock()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.config.idle_s / IDLE_CHECKS)
            await self.end_if_idle()

    async def end_if_idle(self) -> None:
        """End the host if it has been idle for long enough."""
        async with self._starting:
            host = self._host
            if host is None or any(instance.is_busy for instance in self._instances.values()):
                return
            if self._clock() - self._used_s >= self.config.idle_s:
                _log.info("stopping the Spark function host: no run for %g s", self.config.idle_s)
                await host.end()

    async def close(self) -> None:  # noqa: D102  documented in interface.Runtime
        self._is_closed = True
        await self._tasks.close()
        if self._host is not None:
            await self._host.end()
