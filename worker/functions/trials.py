"""Trials of new versions, run by the leader: a version that starts is confirmed, otherwise it is rolled back.

Design: active trials are stored in the functions' records, which every worker reads; a worker acts on them only while
it is the leader. An outcome is a request like any other, decided against the examined record: if the function was
changed or deleted meanwhile, the request is out of date and has no effect. The leader may therefore be killed at any
time: either the outcome is in the log, or the next leader finds the trial and evaluates it again.

A version has started successfully once all its instances were seen running twice, `STEADY_S` apart, without a restart
in the meantime. Stopping all instances also ends a trial: there is nothing left to observe, and an operator is in
control.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import NamedTuple

from ...errors import FunctionExists, MagnetarError, NotLeader, OutOfDate
from ...metadata.functions import Change, FunctionMetadataManager, FunctionRequest
from ...web.deployments import FAILED, RUNNING, STOPPED
from ...wire.functions_pb2 import FunctionMetaData
from ...wire.printable import summary
from .deployments import Progress
from .history import confirmed, newest_version, restored
from .service import FunctionName

STEADY_S = 1.0
_PAUSE_S = 0.3
_LOOKS_AT_ONCE = 16

_log = logging.getLogger(__name__)


class _Seen(NamedTuple):
    """A version seen running: its number, its restarts, and the time of the first observation."""

    version: int
    restarts: tuple[int, ...]
    since_s: float


class Trials:
    """Watches versions on trial."""

    def __init__(
        self,
        metadata: FunctionMetadataManager,
        progress: Callable[[FunctionName, FunctionMetaData], Awaitable[Progress]],
        clock: Callable[[], float] = monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Start without trials; `progress` returns the progress of a record's version, `clock` monotonic seconds."""
        self._metadata = metadata
        self._progress = progress
        self._clock = clock
        self._now_ms = now_ms
        self._on_trial: set[str] = set()
        self._running: dict[str, _Seen] = {}
        self._begun = asyncio.Event()

    def notice(self, change: Change) -> None:
        """Process a changed record of a function."""
        if change.after is not None and change.after.deployments.HasField("trial"):
            self._on_trial.add(change.fqfn)
            self._begun.set()
        else:
            self._on_trial.discard(change.fqfn)
            self._running.pop(change.fqfn, None)

    async def run(self) -> None:
        """Decide trials while this worker is the leader, until cancelled."""
        while True:
            await self._begun.wait()
            if not self._on_trial:
                self._begun.clear()
                continue
            if self._metadata.log.is_leading:
                await self.look()
            else:
                self._running.clear()
            await asyncio.sleep(_PAUSE_S)

    async def look(self) -> None:
        """Check every version on trial, and end decided trials."""
        some = asyncio.Semaphore(_LOOKS_AT_ONCE)

        async def one(name: str) -> None:
            async with some:
                try:
                    await self._look_at(name)
                except (OutOfDate, FunctionExists, NotLeader) as exc:
                    _log.info("another leader has taken over the trial of %s: %s", name, exc)
                except MagnetarError as exc:
                    _log.warning("cannot decide the trial of %s; retrying: %s", name, exc)

        await asyncio.gather(*map(one, sorted(self._on_trial)))

    async def _look_at(self, name: str) -> None:
        metadata = self._metadata.get(name)
        if metadata is None or not metadata.deployments.HasField("trial") or metadata.HasField("stateChange"):
            return  # no instance can run before the leader has made the pending state change
        found = await self._progress(FunctionName(*name.split("/")), metadata)
        # From here on the record may be stale; the request contains its version and is rejected if that has changed.
        if self._has_come_up(name, metadata.version, found):
            await self._submit(confirmed(metadata))
            return
        trial = metadata.deployments.trial
        is_late = self._now_ms() >= trial.untilMs and found.state != RUNNING
        if found.state != FAILED and not is_late:
            return
        reason = found.error or f"only {found.num_running} of {found.num_instances} instances were running in time"
        _log.warning(
            "version %d of %s failed to start; restoring version %d: %s",
            newest_version(metadata), name, trial.fallbackVersion, summary(reason),
        )  # fmt: skip
        await self._submit(restored(metadata, trial.fallbackVersion, self._now_ms(), reason))

    def _has_come_up(self, name: str, version: int, found: Progress) -> bool:
        if found.state == STOPPED:
            return True
        if found.state != RUNNING:
            self._running.pop(name, None)
            return False
        seen = self._running.get(name)
        if seen is None or (seen.version, seen.restarts) != (version, found.restarts):
            self._running[name] = _Seen(version, found.restarts, self._clock())
            return False
        return self._clock() - seen.since_s >= STEADY_S

    async def _submit(self, metadata: FunctionMetaData) -> None:
        await self._metadata.submit(FunctionRequest(metadata, uuid.uuid4().hex))
