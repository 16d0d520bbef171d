"""Compaction of the internal logs by the broker, so that a worker's start does not read all that ever was.

The leader asks; asking twice, as after a change of leader, does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from ...errors import MagnetarError

_log = logging.getLogger(__name__)


class LogCompaction:
    """Has the logs compacted from time to time, on the leader."""

    def __init__(
        self,
        compact: Callable[[str], Awaitable[None]],
        topics: Sequence[str],
        is_leading: Callable[[], bool],
        period_s: float,
    ) -> None:
        """Ask every `period_s` seconds; never if that is not positive."""
        self._compact = compact
        self._topics = tuple(topics)
        self._is_leading = is_leading
        self._period_s = period_s

    async def run(self) -> None:
        """Ask until cancelled."""
        if self._period_s <= 0:
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(self._period_s)
            if self._is_leading():
                await self.compact_all()

    async def compact_all(self) -> None:
        """Ask for each log once; what fails is tried again after the next period."""
        for topic in self._topics:
            try:
                await self._compact(topic)
            except MagnetarError as exc:
                _log.warning("%s is not compacted: %s", topic, exc)
