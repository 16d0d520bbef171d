"""Removing the subscriptions of a deleted function, once nobody reads from them any more.

An instance may be stopping, or just about to subscribe, when its function is deleted. So the removal is tried again and
again until instances must have ended; trying to remove what is gone costs one small request. The leader does it, and
every other worker remembers it as long, for it may be the next leader. If all workers die within that time the
subscriptions stay, as they do with Apache Pulsar whenever the one worker dies. A function that is created again under
the name meanwhile keeps them.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable
from time import monotonic

from ..errors import MagnetarError
from ..metadata.functions_state import fqfn
from ..wire.functions_pb2 import FunctionMetaData

DELAYS_S = (0.0, 0.1, 0.3, 1.0, 3.0, 6.0, 12.0, 20.0)
"""When to try, after the deletion: an instance has 10 s to stop."""

_LOOK_S = 0.5
"""How often a worker that does not lead looks whether it does."""

_MAX_WAITING = 10_000

_log = logging.getLogger(__name__)


class SubscriptionCleanup:
    """Deleted functions, by the time of their next removal."""

    def __init__(
        self,
        delete: Callable[[str, str], Awaitable[bool]],
        exists: Callable[[str], bool],
        is_leading: Callable[[], bool],
    ) -> None:
        """Remember nothing until it runs: what a worker reads at its start was deleted long ago.

        Args:
            delete: removes a topic's subscription; returns False while that is in use.
            exists: whether a function of a name is there again.
            is_leading: whether this worker is the one to do it.
        """
        self._delete = delete
        self._exists = exists
        self._is_leading = is_leading
        self._is_running = False
        self._waiting: list[tuple[float, int, int, float, FunctionMetaData]] = []
        self._order = itertools.count()
        self._added = asyncio.Event()

    def add(self, metadata: FunctionMetaData) -> None:
        """Remove the subscriptions of a function that was deleted just now, unless it keeps them."""
        if not (self._is_running and metadata.functionDetails.source.cleanupSubscription):
            return
        if len(self._waiting) >= _MAX_WAITING:
            _log.warning("the subscriptions of %s stay: too many deletions at once", fqfn(metadata))
            return
        now = monotonic()
        self._plan(metadata, now, 0, now)
        self._added.set()

    def _plan(self, metadata: FunctionMetaData, deleted_at: float, attempt: int, due: float) -> None:
        heapq.heappush(self._waiting, (due, next(self._order), attempt, deleted_at, metadata))

    async def run(self) -> None:
        """Remove what is due, until cancelled."""
        self._is_running = True
        while True:
            self._added.clear()
            try:
                async with asyncio.timeout(self._waiting[0][0] - monotonic() if self._waiting else None):
                    await self._added.wait()
            except TimeoutError:
                _, _, attempt, deleted_at, metadata = heapq.heappop(self._waiting)
                is_last = attempt + 1 == len(DELAYS_S)
                if not self._is_leading():
                    if monotonic() < deleted_at + DELAYS_S[-1]:
                        self._plan(metadata, deleted_at, attempt, monotonic() + _LOOK_S)
                elif await self._remove(metadata, is_last=is_last) and not is_last:
                    self._plan(metadata, deleted_at, attempt + 1, deleted_at + DELAYS_S[attempt + 1])

    async def _remove(self, metadata: FunctionMetaData, *, is_last: bool) -> bool:
        """Try to remove; returns False if there is nothing to do any more."""
        name = fqfn(metadata)
        if self._exists(name):
            return False
        source = metadata.functionDetails.source
        subscription = source.subscriptionName or name
        for topic in source.inputSpecs:
            try:
                is_gone, reason = await self._delete(topic, subscription), "it is in use"
            except MagnetarError as exc:
                is_gone, reason = False, str(exc)
            if not is_gone and is_last:
                _log.warning("subscription %s of %s stays after its function is gone: %s", subscription, topic, reason)
        return True
