"""Removing the subscriptions of a deleted function, once nobody reads from them any more.

The leader does it, in memory only: if it dies within the minute after a deletion, the subscriptions stay, as they do
with Apache Pulsar. A function that is created again under the name meanwhile keeps them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from ..errors import MagnetarError
from ..metadata.functions_state import fqfn
from ..wire.functions_pb2 import FunctionMetaData
from .broker_admin import BrokerAdmin

_ATTEMPTS = 120
_PAUSE_S = 0.25
_MAX_WAITING = 10_000

_log = logging.getLogger(__name__)


class SubscriptionCleanup:
    """A queue of deleted functions."""

    def __init__(self, admin: BrokerAdmin, exists: Callable[[str], bool]) -> None:
        """Ask `exists` whether a function of that name is there again."""
        self._admin = admin
        self._exists = exists
        self._waiting: deque[tuple[FunctionMetaData, int]] = deque(maxlen=_MAX_WAITING)
        self._added = asyncio.Event()

    def add(self, metadata: FunctionMetaData) -> None:
        """Remove the subscriptions of a function that was deleted just now, unless it keeps them."""
        if metadata.functionDetails.source.cleanupSubscription:
            self._waiting.append((metadata, _ATTEMPTS))
            self._added.set()

    async def run(self) -> None:
        """Work the queue off until cancelled."""
        while True:
            await self._added.wait()
            self._added.clear()
            while self._waiting:
                # Instances take a moment to stop; meanwhile others may be done already.
                for _ in range(len(self._waiting)):
                    metadata, attempts = self._waiting.popleft()
                    if not await self._remove(metadata, is_last=attempts <= 1) and attempts > 1:
                        self._waiting.append((metadata, attempts - 1))
                if self._waiting:
                    await asyncio.sleep(_PAUSE_S)

    async def _remove(self, metadata: FunctionMetaData, *, is_last: bool) -> bool:
        name = fqfn(metadata)
        if self._exists(name):
            return True
        source = metadata.functionDetails.source
        subscription = source.subscriptionName or name
        is_done = True
        for topic in source.inputSpecs:
            try:
                is_gone, reason = await self._admin.delete_subscription(topic, subscription), "it is in use"
            except MagnetarError as exc:
                is_gone, reason = False, str(exc)
            if not is_gone and is_last:
                _log.warning(
                    "subscription %s of %s stays after the deletion of %s: %s", subscription, topic, name, reason
                )
            is_done = is_done and is_gone
        return is_done
