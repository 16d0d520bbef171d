"""Leadership of a worker: taking the logs, scheduling, draining.

Being called active is not leading yet: first the worker takes both logs for writing and reads them to their end, so
that whatever an earlier leader wrote is in the tables. Being called inactive ends it at once. Logs that could not be
written (the broker fenced or closed the producer) are taken anew as long as the worker is still the active one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from time import monotonic

from ...errors import MagnetarError, RequestRefused
from ...membership.drains import TOO_FEW, Drains
from ...membership.grace_period import GracePeriod
from ...membership.manager import MembershipManager
from ...metadata.functions import FunctionMetadataManager
from ...scheduler.manager import SchedulerManager, Workforce
from ..config import WorkerConfig

_RETRY_S = 0.5
_log = logging.getLogger(__name__)


class Leadership:
    """Leads while the broker has this worker's consumer active: takes the logs, decides, schedules."""

    def __init__(self, config: WorkerConfig, metadata: FunctionMetadataManager, scheduler: SchedulerManager) -> None:
        self._config = config
        self._metadata = metadata
        self._scheduler = scheduler
        self._logs = {"leader": metadata.log, "scheduler-manager": scheduler.log}  # by what their producers are called
        self._grace = GracePeriod(config.reschedule_timeout_ms / 1000)
        self._drains = Drains(self._scheduler.drained)
        self._drain_turn = asyncio.Lock()
        self._is_rebalancing = False
        self._is_active = False
        self._turned = asyncio.Event()
        self._dirty = asyncio.Event()
        self._has_taken = asyncio.Event()
        self._failure = ""

    @property
    def is_leading(self) -> bool:
        """Whether requests are accepted here."""
        return self._metadata.log.is_leading

    def became(self, is_active: bool) -> None:
        """Note whether this worker's consumer is the active one; returns at once."""
        self._is_active = is_active
        self._has_taken.clear()
        if not is_active:
            self._follow()
        self._turned.set()

    def _follow(self) -> None:
        for log in self._logs.values():
            log.follow()

    async def ready(self, timeout_s: float) -> None:
        """Return once this worker leads, if it is to; at the latest after `timeout_s`. Cancellation: safe."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._is_active and not self.is_leading:
                    await self._has_taken.wait()

    def reschedule(self) -> None:
        """Have a round of scheduling soon."""
        self._dirty.set()

    async def run_election(self, worker_id: str) -> None:
        """Take and release the logs as the broker says, until cancelled."""
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
                _log.warning("worker %s is active but cannot lead yet, trying again: %s", worker_id, exc)
            await self._release()
            await asyncio.sleep(_RETRY_S)
            self._turned.set()
            return
        if not self._is_active:
            self._turned.set()
            return
        self._failure = ""
        self._grace.restart()
        self._drains.restart()
        for log in self._logs.values():
            log.lead(self._lost)
        self._has_taken.set()
        _log.info("worker %s leads: both logs are taken", worker_id)
        self.reschedule()

    async def _release(self) -> None:
        self._follow()
        # The next leader must not decide anything while this one still removes what a deleted function leaves.
        await self._metadata.deletions_ended()
        for log in self._logs.values():
            await log.close()

    def _lost(self) -> None:
        """End the leadership after an append failed; the logs are taken anew."""
        self._follow()
        self._turned.set()

    async def run_schedule(self, membership: MembershipManager) -> None:
        """Schedule when something changed, and read the roster every `failure_check_ms`, until cancelled."""
        period_s = self._config.failure_check_ms / 1000
        evened_out_at = monotonic()
        while True:
            try:
                async with asyncio.timeout(period_s):
                    await self._dirty.wait()
            except TimeoutError:
                pass
            self._dirty.clear()
            if not self.is_leading:
                await self._read_roster(membership)
                continue
            is_due = 0 < self._config.rebalance_check_s <= monotonic() - evened_out_at
            if is_due:
                evened_out_at = monotonic()
            try:
                await self._round(membership, is_evened_out=is_due)
            except MagnetarError as exc:
                self._grace.restart()
                _log.warning("scheduling failed, trying again: %s", exc)
                await asyncio.sleep(_RETRY_S)
                self._dirty.set()

    async def _read_roster(self, membership: MembershipManager) -> None:
        """Read the roster: it may show that this worker leads, although no event said so."""
        with contextlib.suppress(MagnetarError):
            await membership.roster()

    async def _round(self, membership: MembershipManager, *, is_evened_out: bool = False) -> None:
        members = await _incarnations(membership)
        if membership.me.worker_id not in members:
            # The leader itself is not connected: what it sees says nothing about the others.
            self._grace.restart()
            return
        now = monotonic()
        for worker_id in self._drains.forgotten(members, now):
            await self._scheduler.drain(worker_id, None)
        missing = self._grace.granted(self._owners() - set(members), now)
        workforce = Workforce(self._drains.available(members), missing, is_evened_out)
        written = await self._scheduler.schedule(self._metadata.all, workforce)
        if written:
            _log.info("scheduled: %d assignments changed over %d workers", written, len(members))

    def _owners(self) -> set[str]:
        return {assignment.workerId for assignment in self._scheduler.assignments().values()}

    async def rebalance(self, membership: MembershipManager) -> None:
        """Even the load out, on the leader; returns once the moves are decided and durable.

        Raises:
            RequestRefused: another call does so already, or there are too few workers.
        """
        if self._is_rebalancing:
            raise RequestRefused(400, "Rebalance already in progress")
        self._is_rebalancing = True
        try:
            if len(self._drains.available(await _incarnations(membership))) < 2:
                raise RequestRefused(400, TOO_FEW)
            await self._round(membership, is_evened_out=True)
        finally:
            self._is_rebalancing = False

    async def drain(self, membership: MembershipManager, worker_id: str) -> None:
        """Begin to drain a worker, on the leader.

        Raises:
            RequestRefused: the worker is unknown or was drained, another drain runs, or there are too few workers.
            NotLeader: another worker leads by now.
        """
        async with self._drain_turn:
            incarnation = self._drains.check(worker_id, await _incarnations(membership), self._owners())
            await self._scheduler.drain(worker_id, incarnation)
        self.reschedule()

    async def drain_status(self, membership: MembershipManager, worker_id: str) -> dict[str, str]:
        """Return the JSON that says how far the drain of a worker is, on the leader."""
        return self._drains.status(worker_id, await _incarnations(membership), self._owners())


async def _incarnations(membership: MembershipManager) -> Mapping[str, str]:
    return (await membership.roster()).incarnations
