"""The task that starts the automatic runs of a Spark function: by cron, by backlog, or continuously.

`spark.jobs.triggers` makes the decisions, and the instance holds the history, read from the state store. The task does
not need the host, which ends when it is idle; the next run starts another.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from ...errors import RunNotYet, RunRefused
from ...spark.jobs.triggers import CHECK_MS, UNKNOWN, Past, Trigger, asks_for_backlog, begins, due_ms
from ...tasks import TaskSet, within

LONGEST_S = 30.0
"""Maximum time between two checks of the clock, which may be changed, in seconds."""
BUSY_S = 1.0
"""Pause after a rejected run, in seconds: another one is active, or the function is being loaded."""
_log = logging.getLogger(__name__)


class Triggered(Protocol):
    """The function whose runs are started."""

    def may_begin(self) -> bool:
        """Return whether the function is loaded and no run is active."""

    def past(self, looked_ms: int) -> Past:
        """Return the history of runs."""

    async def entries(self) -> int:
        """Return the current backlog, or `UNKNOWN`."""

    async def begin_run(self, run_id: str, due_ms: int = 0) -> None:
        """Start a run; raises RunNotYet, RunRefused."""


class TriggerLoop:
    """Starts runs between `start` and `close`.

    Attributes:
        trouble: why no run starts on time, in one line; empty if runs start on time.
    """

    def __init__(self, name: str, trigger: Trigger, function: Triggered, now_ms: Callable[[], int]) -> None:
        """Create a loop for `start`.

        Args:
            name: function name, for logs.
            trigger: decides when runs are due.
            function: function whose runs are started.
            now_ms: wall clock.
        """
        self.trouble = ""
        self._name = name
        self._trigger = trigger
        self._function = function
        self._now_ms = now_ms
        self._looked_ms = 0
        self._unknown = ""  # reason why it is unknown whether a run is due
        self._changed = asyncio.Event()
        self._tasks = TaskSet(f"triggers of {name}")
        self._is_started = False

    def start(self) -> None:
        """Start the loop if it is not running; failures are logged, shown as trouble, and retried after a pause."""
        if not self._is_started:
            self._is_started = True
            self._tasks.keep(self._run, "runs that are due", on_failure=self._failed)

    def changed(self) -> None:
        """Check immediately, because a run has ended or the clock was changed."""
        self._changed.set()

    def close(self) -> None:
        """Stop the loop; no more runs are started."""
        self._tasks.cancel()

    def _failed(self, error: BaseException) -> None:
        _log.error("%s: automatic runs are suspended after an error", self._name, exc_info=error)
        self.trouble = f"automatic runs are suspended after an error: {type(error).__name__}: {error}"

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            wait_s = await self._look()
            await within(wait_s, self._changed.wait())

    async def _look(self) -> float:
        """Start a run if one is due, and return the seconds until the next check."""
        if not self._function.may_begin():
            return LONGEST_S
        past, now_ms = self._function.past(self._looked_ms), self._now_ms()
        due = due_ms(self._trigger, past)
        if due > now_ms:
            again = f"{_failures(past)}; the next one starts at {_shown(due)}"
            self.trouble = again if past.failures else self._unknown
            return min((due - now_ms) / 1000, LONGEST_S)
        backlog = await self._function.entries() if asks_for_backlog(self._trigger, past) else UNKNOWN
        if not begins(self._trigger, past, backlog):
            self._looked_ms = now_ms
            blind = f"waiting for the backlog from the broker to start runs, checking every {CHECK_MS // 1000} s"
            self._unknown = blind if backlog == UNKNOWN else ""
            return 0
        try:
            await self._function.begin_run(uuid.uuid4().hex[:12], now_ms)
        except (RunNotYet, RunRefused):
            return BUSY_S
        self.trouble, self._unknown = _failures(past), ""
        return LONGEST_S


def _failures(past: Past) -> str:
    return f"the last {past.failures} runs failed" if past.failures > 1 else "the last run failed" * past.failures


def _shown(time_ms: int) -> str:
    return datetime.fromtimestamp(-(-time_ms // 1000), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
