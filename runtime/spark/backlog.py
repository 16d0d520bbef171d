"""The backlog of a function as its status shows it: asked for now and then, never older than the end of a run."""

from __future__ import annotations

import asyncio
import time

from ...instance.spec import InstanceSpec
from ...spark.jobs.backlog import UNKNOWN, backlog_entries
from ...tasks import TaskSet

KEPT_S = 1.0
"""How old an answer may be."""
STATUS_WAIT_S = 0.5
"""How long a status waits for the broker; then it shows what was known last."""


class Backlog:
    """The backlog of one function; for one event loop, which asks the broker in a thread."""

    def __init__(self, spec: InstanceSpec) -> None:
        """Prepare; nothing is asked yet."""
        self._spec = spec
        self._known = UNKNOWN
        self._asked_s: float | None = None
        self._ends_seen = 0
        self._tasks = TaskSet(f"backlog of {spec.key}")
        self._asking: asyncio.Task[None] | None = None

    async def entries(self) -> int:
        """Return the number of entries, `UNKNOWN` if the broker has not told it."""
        if not self._spec.admin_url:
            return UNKNOWN
        is_old = self._asked_s is None or time.monotonic() - self._asked_s > KEPT_S
        if self._asking is None and is_old:
            self._asking = self._tasks.start(self._ask(), "question")
        if self._asking is not None:
            await asyncio.wait((self._asking,), timeout=STATUS_WAIT_S)  # `close` may cancel the question, not who waits
        return self._known

    def run_ended(self, left: int) -> None:
        """Set what a run has left: answers to questions from before its end are not shown any more.

        Args:
            left: entries, `UNKNOWN` if the run could not tell.
        """
        self._known, self._asked_s = left, None
        self._ends_seen += 1

    async def _ask(self) -> None:
        try:
            self._known = await self._answer()
            self._asked_s = time.monotonic()
        finally:
            self._asking = None

    async def _answer(self) -> int:
        while True:
            ends_seen = self._ends_seen
            answer = await asyncio.to_thread(backlog_entries, self._spec)
            if ends_seen == self._ends_seen:
                return answer
            # A run has ended meanwhile: the answer may be of before.

    def close(self) -> None:
        """Cancel the question to the broker."""
        if self._asking is not None:
            self._asking.cancel()
