"""What a leader does beside answering requests: take the logs, keep the schedule, tidy up.

Being called active is not leading yet: first the worker takes both logs for writing and reads them to their end, so
that whatever an earlier leader wrote is in the tables. Being called inactive ends it at once. A broken producer (the
broker fenced it, or closed it) is taken anew as long as the worker is still the active one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import TypeVar

from ...client.client import AsyncClient
from ...errors import MagnetarError, NotLeader, RequestRefused
from ...membership.drains import TOO_FEW, Drains
from ...membership.grace_period import AbsenceClock
from ...membership.manager import MembershipManager
from ...metadata.functions import FunctionMetadataManager
from ...metadata.functions import LogAccess as MetadataAccess
from ...scheduler.manager import LogAccess as ScheduleAccess
from ...scheduler.manager import SchedulerManager, Workforce
from ..config import WorkerConfig
from .topic_log import LogWriter, Position, TailedLog

_RETRY_S = 0.5
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Leadership:
    """Turns the broker's word about who is active into deciding and scheduling."""

    def __init__(
        self,
        config: WorkerConfig,
        client: AsyncClient,
        functions: tuple[FunctionMetadataManager, TailedLog],
        assignments: tuple[SchedulerManager, TailedLog],
    ) -> None:
        self._config = config
        self._client = client
        self._metadata, self._metadata_log = functions
        self._scheduler, self._assignments_log = assignments
        self._absence = AbsenceClock(config.reschedule_timeout_ms / 1000)
        self._drains = Drains(self._scheduler.drained)
        self._drain_turn = asyncio.Lock()
        self._is_rebalancing = False
        self._is_active = False
        self._is_broken = False
        self._writers: list[LogWriter] = []
        self._turned = asyncio.Event()
        self._dirty = asyncio.Event()
        self._has_taken = asyncio.Event()
        self._hindrance = ""

    @property
    def is_leading(self) -> bool:
        """Whether requests are accepted here."""
        return self._metadata.is_leading

    def became(self, is_active: bool) -> None:
        """Hear from the broker whether this worker's consumer is the active one; returns at once."""
        self._is_active = is_active
        self._has_taken.clear()
        if not is_active:
            self._metadata.follow()
            self._scheduler.follow()
        self._turned.set()

    async def ready(self, timeout_s: float) -> None:
        """Return once this worker leads, if it is to; at the latest after `timeout_s`. Cancellation: safe."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._is_active and not self.is_leading:
                    await self._has_taken.wait()

    def reschedule(self) -> None:
        """Look soon whether instances must be placed, changed or removed."""
        self._dirty.set()

    async def run_election(self, worker_id: str) -> None:
        """Take and release the logs as the broker says, until cancelled."""
        try:
            while True:
                await self._turned.wait()
                self._turned.clear()
                if self._writers and (self._is_broken or not self._is_active):
                    await self._release()
                if self._is_active and not self._writers:
                    await self._take(worker_id)
        finally:
            await self._release()

    async def _take(self, worker_id: str) -> None:
        try:
            functions = await self._open(self._config.metadata_topic, f"{worker_id}-leader")
            assignments = await self._open(self._config.assignments_topic, f"{worker_id}-scheduler-manager")
            await self._metadata_log.catch_up()
            await self._assignments_log.catch_up()
        except MagnetarError as exc:
            if str(exc) != self._hindrance:
                self._hindrance = str(exc)
                _log.warning("worker %s is active but cannot lead yet, trying again: %s", worker_id, exc)
            await self._release()
            await asyncio.sleep(_RETRY_S)
            self._turned.set()
            return
        if not self._is_active:
            self._turned.set()
            return
        self._hindrance = ""
        self._absence.restart()
        self._drains.restart()
        self._metadata.lead(MetadataAccess(self._guarded(functions.append), self._metadata_log.catch_up))
        append_all = self._guarded_all(assignments.append_all)
        self._scheduler.lead(ScheduleAccess(append_all, self._assignments_log.catch_up))
        self._has_taken.set()
        _log.info("worker %s leads: both logs are taken", worker_id)
        self.reschedule()

    async def _open(self, topic: str, name: str) -> LogWriter:
        writer = await LogWriter.open(self._client, self._config.topic(topic), name)
        self._writers.append(writer)
        return writer

    async def _release(self) -> None:
        self._metadata.follow()
        self._scheduler.follow()
        self._is_broken = False
        # The next leader must not decide anything while this one still removes what a deleted function leaves.
        await self._metadata.deletions_ended()
        writers, self._writers = self._writers, []
        for writer in writers:
            try:
                await writer.close()
            except MagnetarError as exc:
                _log.debug("closing a log: %s", exc)

    def _guarded(self, append: Callable[..., Awaitable[Position]]) -> Callable[..., Awaitable[Position]]:
        async def guarded(*record: object) -> Position:
            return await self._watch(append(*record))

        return guarded

    def _guarded_all(
        self, append: Callable[[Sequence[tuple[str, bytes]]], Awaitable[Position]]
    ) -> Callable[[Sequence[tuple[str, bytes]]], Awaitable[Position]]:
        async def guarded(records: Sequence[tuple[str, bytes]]) -> Position:
            return await self._watch(append(records))

        return guarded

    async def _watch(self, writing: Awaitable[_T]) -> _T:
        """Give up the logs after any error, and take them anew.

        A record whose writing failed may still arrive. Nothing of an earlier producer does once its successor has the
        topic, so only a new one lets the next decision see all that there will ever be.
        """
        try:
            return await writing
        except MagnetarError as exc:
            self._metadata.follow()
            self._scheduler.follow()
            self._is_broken = True
            self._turned.set()
            raise NotLeader(f"the leader lost its log: {exc}") from exc

    async def run_schedule(self, membership: MembershipManager) -> None:
        """Schedule when something changed, and look who is there every `failure_check_ms`, until cancelled."""
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
                await self._look(membership)
                continue
            is_due = 0 < self._config.rebalance_check_s <= monotonic() - evened_out_at
            if is_due:
                evened_out_at = monotonic()
            try:
                await self._round(membership, is_evened_out=is_due)
            except MagnetarError as exc:
                self._absence.restart()
                _log.warning("scheduling failed, trying again: %s", exc)
                await asyncio.sleep(_RETRY_S)
                self._dirty.set()

    async def _look(self, membership: MembershipManager) -> None:
        """See whether this worker leads without having been told."""
        with contextlib.suppress(MagnetarError):
            await membership.roster()

    async def _round(self, membership: MembershipManager, *, is_evened_out: bool = False) -> None:
        members = await _lives(membership)
        if membership.me.worker_id not in members:
            # The leader itself is not connected: what it sees says nothing about the others.
            self._absence.restart()
            return
        now = monotonic()
        for worker_id in self._drains.forgotten(members, now):
            await self._scheduler.drain(worker_id, None)
        excused = self._absence.excused(self._owners(), members, now)
        workforce = Workforce(self._drains.available(members), excused, is_evened_out)
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
            if len(self._drains.available(await _lives(membership))) < 2:
                raise RequestRefused(400, TOO_FEW)
            await self._round(membership, is_evened_out=True)
        finally:
            self._is_rebalancing = False

    async def drain(self, membership: MembershipManager, worker_id: str) -> None:
        """Begin to empty a worker, on the leader.

        Raises:
            RequestRefused: the worker is unknown or was drained, another drain runs, or there are too few workers.
            NotLeader: another worker leads by now.
        """
        async with self._drain_turn:
            life = self._drains.check(worker_id, await _lives(membership), self._owners())
            await self._scheduler.drain(worker_id, life)
        self.reschedule()

    async def drain_status(self, membership: MembershipManager, worker_id: str) -> dict[str, str]:
        """Return the JSON that says how far the drain of a worker is, on the leader."""
        return self._drains.status(worker_id, await _lives(membership), self._owners())


async def _lives(membership: MembershipManager) -> Mapping[str, str]:
    return (await membership.roster()).lives
