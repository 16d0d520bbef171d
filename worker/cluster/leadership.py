"""Worker leadership: acquisition and release of the two logs.

A worker whose consumer becomes active is not yet the leader. It first acquires write access to both logs and reads them
to the end, so that its tables include everything that earlier leaders wrote. Leadership ends when the consumer becomes
inactive. If a log cannot be written because the broker fenced or closed the producer, the worker reacquires the logs
while its consumer is still active.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from ...errors import MagnetarError
from ...metadata.functions import FunctionMetadataManager
from ...scheduler.manager import SchedulerManager

_RETRY_S = 0.5
_log = logging.getLogger(__name__)


class Leadership:
    """Holds write access to the logs while this worker's consumer is active."""

    def __init__(
        self, metadata: FunctionMetadataManager, scheduler: SchedulerManager, on_taken: Callable[[], None]
    ) -> None:
        """Create the leadership of two logs; `on_taken` is called each time this worker becomes the leader."""
        self._metadata = metadata
        self._on_taken = on_taken
        self._logs = {"leader": metadata.log, "scheduler-manager": scheduler.log}  # by producer name
        self._is_active = False
        self._turned = asyncio.Event()
        self._has_taken = asyncio.Event()
        self._failure = ""

    @property
    def is_leading(self) -> bool:
        """Whether this worker accepts requests as the leader."""
        return self._metadata.log.is_leading

    def became(self, is_active: bool) -> None:
        """Record whether this worker's consumer is active, and return immediately."""
        self._is_active = is_active
        self._has_taken.clear()
        if not is_active:
            self._follow()
        self._turned.set()

    def _follow(self) -> None:
        for log in self._logs.values():
            log.follow()

    async def ready(self, timeout_s: float) -> None:
        """If the consumer is active, wait at most `timeout_s` until this worker is the leader. Cancellation: safe."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._is_active and not self.is_leading:
                    await self._has_taken.wait()

    async def run_election(self, worker_id: str) -> None:
        """Acquire and release the logs as the broker activates and deactivates the consumer, until cancelled."""
        try:
            while True:
                await self._turned.wait()
                self._turned.clear()
                if not self.is_leading:
                    await self._release()
                    if self._is_active:
                        await self._take(worker_id)
        finally:
            await self._release()

    async def _take(self, worker_id: str) -> None:
        try:
            for role, log in self._logs.items():
                await log.open(f"{worker_id}-{role}")
            for log in self._logs.values():
                await log.catch_up()
        except MagnetarError as exc:
            if str(exc) != self._failure:
                self._failure = str(exc)
                _log.warning("worker %s is active but cannot lead yet; retrying: %s", worker_id, exc)
            await self._release()
            await asyncio.sleep(_RETRY_S)
            self._turned.set()
            return
        if not self._is_active:
            self._turned.set()
            return
        self._failure = ""
        for log in self._logs.values():
            log.lead(self._lost)
        self._has_taken.set()
        _log.info("worker %s became the leader and opened both logs", worker_id)
        self._on_taken()

    async def _release(self) -> None:
        self._follow()
        # The next leader must not decide anything while this one is still cleaning up after a deleted function.
        await self._metadata.deletions_ended()
        for log in self._logs.values():
            await log.close()

    def _lost(self) -> None:
        """Give up leadership after a failed append; the logs are then reacquired."""
        self._follow()
        self._turned.set()
