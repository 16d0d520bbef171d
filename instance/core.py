"""State shared by the parts of one instance: spec, counters, log, tasks, and why it ended."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from ..api.connector_secrets import Hiding
from ..client.client import AsyncClient
from ..client.config import Guard
from ..tasks import TaskSet, call_in, settle
from .encryption import InstanceEncryption
from .logs.file import InstanceLog
from .ports import Endpoints
from .spec import InstanceSpec
from .stats import InstanceStats, encodable, format_error, now_ms, reason_of
from .turns import Turns


class Mailbox:
    """Runs actions from any thread on one event loop, in the order of `post` calls."""

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        """Create a mailbox for the running event loop.

        Args:
            on_error: called with the exception of an action; later actions still run.
        """
        self._loop = asyncio.get_running_loop()
        self._on_error = on_error
        self._actions: deque[Callable[[], None]] = deque()
        self._is_woken = False

    def post(self, action: Callable[[], None]) -> None:
        """Queue an action for the event loop (from any thread)."""
        self._actions.append(action)
        if not self._is_woken:
            self._is_woken = True
            call_in(self._loop, self._empty)

    def _empty(self) -> None:
        self._is_woken = False  # first, so that actions posted from now on wake the loop again
        while self._actions:
            try:
                self._actions.popleft()()
            except Exception as error:  # noqa: BLE001  the mailbox's owner handles them
                self._on_error(error)


class InstanceCore:
    """The state of one instance that its parts share.

    Attributes:
        spec: the instance's spec.
        client: connects to the broker.
        endpoints: opens inputs and outputs.
        guard: guard of all producers and consumers; None without an instance lock.
        hiding: removes secrets from log and status.
        stats: the instance's counters.
        log: the instance's log.
        encryption: the instance's encryption keys, once they are loaded.
        loop: the instance's event loop.
        mailbox: runs actions of other threads on the loop.
        tasks: tasks that take input, and others that must end before the function.
        ended: reason why the instance ended, set when it ends; empty if it was stopped.
        opening: description of the resource being opened, for errors.
        is_broken: whether a failure makes it impossible to finish work in progress.
        thread_id: id of the function's thread, once it has started.
        turns: turns of the functions that share the process; None if the instance has its own process.
        call_died: called with the reason if the instance ends because of the call in flight.
        is_abandoned: whether the function did not return after a stop request.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        client: AsyncClient,
        endpoints: Endpoints,
        instance_log: InstanceLog,
        guard: Guard | None,
        turns: Turns | None = None,
    ) -> None:
        """Create the core on the client's event loop."""
        self.turns = turns
        self.is_abandoned = False
        self.call_died: Callable[[str], object] = str
        self.spec = spec
        self.client = client
        self.endpoints = endpoints
        self.guard = guard
        self.hiding = Hiding()
        self.stats = InstanceStats(time.monotonic(), self.hiding)
        self.log = instance_log
        instance_log.hiding = self.hiding
        self.loop = asyncio.get_running_loop()
        self.mailbox = Mailbox(self._action_failed)
        self.tasks = TaskSet(f"instance {spec.key}")
        self.ended: asyncio.Future[str] = self.loop.create_future()
        self.encryption = InstanceEncryption(spec, self.stats, instance_log.write, self.end)
        self.opening = ""
        self.is_broken = False
        self.thread_id: int | None = None

    def end(self, reason: str) -> None:
        """End the instance with a reason for its status, which is empty if a stop was requested."""
        settle(self.ended, self.hiding(encodable(reason)))

    def failed(self, error: BaseException) -> None:
        """End the instance because of an error that would not be reported otherwise."""
        self.end(reason_of(error))

    def _action_failed(self, error: Exception) -> None:
        self.is_broken = True
        self.failed(error)

    def user_failed(self, text: str) -> None:
        """Count and log a failure of the function (from any thread)."""
        self.stats.user_exception(text, now_ms())
        self.log.write("ERROR", text)

    def callback_failed(self, error: BaseException) -> None:
        """Count and log an exception raised by a `context.publish` callback (from any thread)."""
        self.user_failed(f"publish callback failed: {format_error(error)}")

    def system_failed(self, text: str, count: int = 1) -> None:
        """Count failures outside the function, and log them on one line (from any thread)."""
        self.stats.system_exception(text, now_ms(), count)
        self.log.write("ERROR", text)

    def report(self, level: str, text: str) -> None:
        """Log a line, and count it if its level is ERROR (from any thread)."""
        if level == "ERROR":
            self.system_failed(text)
        else:
            self.log.write(level, text)
