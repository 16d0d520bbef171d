"""The leader's scheduling rounds: available workers, assignments, rebalancing and drains."""

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
from ...scheduler.manager import Changed, SchedulerManager, Workforce
from ...tasks import within
from ..config import WorkerConfig

_RETRY_S = 0.5
_log = logging.getLogger(__name__)


class Scheduling:
    """Assigns instances to the available workers while this worker is the leader."""

    def __init__(
        self,
        config: WorkerConfig,
        metadata: FunctionMetadataManager,
        scheduler: SchedulerManager,
        membership: MembershipManager,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._scheduler = scheduler
        self._membership = membership
        self._grace = GracePeriod(config.reschedule_timeout_ms / 1000)
        self._drains = Drains(scheduler.drained)
        self._drain_turn = asyncio.Lock()
        self._is_rebalancing = False
        self._dirty = asyncio.Event()
        self._changed: set[str] | None = None

    def restart(self) -> None:
        """Reset absences and schedule a round, after this worker has become the leader."""
        self._grace.restart()
        self._drains.restart()
        self.reschedule()

    def reschedule(self, function: str | None = None) -> None:
        """Schedule a round soon.

        Args:
            function: the only function that changed; None to check all functions.
        """
        if function is None:
            self._changed = None
        elif self._changed is not None:
            self._changed.add(function)
        self._dirty.set()

    def _take_changed(self) -> Changed | None:
        """Return the functions that changed since the last call, or None if all must be checked."""
        taken, self._changed = self._changed, set()
        return None if taken is None else {name: self._metadata.get(name) for name in taken}

    async def run(self) -> None:
        """Schedule rounds after changes and read the roster every `failure_check_ms`, until cancelled."""
        evened_out_at = monotonic()
        while True:
            await within(self._config.failure_check_ms / 1000, self._dirty.wait())
            self._dirty.clear()
            if not self._metadata.log.is_leading:
                # The roster may show that this worker is the leader even if the event was missed.
                with contextlib.suppress(MagnetarError):
                    await self._membership.roster()
                continue
            is_due = 0 < self._config.rebalance_check_s <= monotonic() - evened_out_at
            if is_due:
                evened_out_at = monotonic()
            try:
                await self._round(is_evened_out=is_due)
            except MagnetarError as exc:
                self._grace.restart()
                self._changed = None
                _log.warning("scheduling failed; retrying: %s", exc)
                await asyncio.sleep(_RETRY_S)
                self._dirty.set()

    async def _round(self, *, is_evened_out: bool = False) -> None:
        members = (
            await self._incarnations()
        )  # never cached, so that workers that joined before a function was created get their share
        if self._membership.me.worker_id not in members:
            # The leader itself is disconnected, so it cannot tell whether other members are connected.
            self._grace.restart()
            return
        now = monotonic()
        for worker_id in self._drains.forgotten(members, now):
            await self._scheduler.drain(worker_id, None)
        missing = self._grace.granted(self._owners() - set(members), now)
        workforce = Workforce(self._drains.available(members), missing, is_evened_out)
        written = await self._scheduler.schedule(self._metadata.all, workforce, self._take_changed)
        if written:
            _log.info("scheduling changed %d assignments across %d workers", written, len(members))

    async def _incarnations(self) -> Mapping[str, str]:
        return (await self._membership.roster()).incarnations

    def _owners(self) -> set[str]:
        return set(self._scheduler.owners())

    async def rebalance(self) -> None:
        """Rebalance the load, and return once the moves are decided and durable.

        Raises:
            RequestRefused: a rebalance is already running, or there are too few workers.
        """
        if self._is_rebalancing:
            raise RequestRefused(400, "Rebalance already in progress")
        self._is_rebalancing = True
        try:
            if len(self._drains.available(await self._incarnations())) < 2:
                raise RequestRefused(400, TOO_FEW)
            await self._round(is_evened_out=True)
        finally:
            self._is_rebalancing = False

    async def drain(self, worker_id: str) -> None:
        """Start draining a worker.

        Raises:
            RequestRefused: the worker is unknown or already drained, another drain is running, or there are too few
                workers.
            NotLeader: another worker has become the leader.
        """
        async with self._drain_turn:
            incarnation = self._drains.check(worker_id, await self._incarnations(), self._owners())
            await self._scheduler.drain(worker_id, incarnation)
        self.reschedule()

    async def drain_status(self, worker_id: str) -> dict[str, str]:
        """Return the progress of a worker's drain as JSON."""
        return self._drains.status(worker_id, await self._incarnations(), self._owners())
