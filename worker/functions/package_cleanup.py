"""Cleanup of packages that no function names: on this machine, and on the leader of their topics.

A package is there before the record that names it, and an upload may be refused in between; so one without a name gets
an hour. The hour is counted in memory: whoever begins to lead, or starts, counts anew.

A package that has been without a name for an hour may get one at any time. So a topic is removed while no change can be
decided, after one more look; whoever names the package afterwards looks whether it is still there, and stores it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from time import monotonic

from ...errors import MagnetarError
from ...membership.grace_period import GracePeriod
from ...metadata.packages import PackageStore
from ..cluster.broker_admin import BrokerAdmin

KEEP_UNNAMED_S = 3600.0
PERIOD_S = 300.0

_log = logging.getLogger(__name__)


@dataclass
class PackageCleanup:
    """Removes packages without a name, looking every few minutes.

    Attributes:
        packages: on this machine.
        admin: the broker.
        topic_prefix: of the topics.
        named: returns the packages that functions name.
        is_leading: whether this worker is the one to remove topics.
        undecided: keeps changes of functions from being decided meanwhile.
    """

    packages: PackageStore
    admin: BrokerAdmin
    topic_prefix: str
    named: Callable[[], set[str]]
    is_leading: Callable[[], bool]
    undecided: Callable[[], AbstractAsyncContextManager[None]]
    _local: GracePeriod = field(default_factory=lambda: GracePeriod(KEEP_UNNAMED_S), init=False)
    _stored: GracePeriod = field(default_factory=lambda: GracePeriod(KEEP_UNNAMED_S), init=False)

    async def run(self) -> None:
        """Tidy up until cancelled."""
        while True:
            await self.tidy(monotonic())
            await asyncio.sleep(PERIOD_S)

    async def tidy(self, now: float) -> None:
        """Remove what has been without a name for long enough."""
        local = await asyncio.to_thread(self.packages.local_ids)
        for package_id in self._expired(self._local, local, now):
            if package_id in self._used():
                continue
            await asyncio.to_thread(self.packages.remove_local, package_id)
        if not self.is_leading():
            self._stored.restart()
            return
        try:
            await self._tidy_topics(now)
        except MagnetarError as exc:
            _log.warning("packages that nothing names could not be removed, trying again later: %s", exc)

    def _used(self) -> set[str]:
        return self.named() | self.packages.in_use()

    def _expired(self, grace: GracePeriod, present: Iterable[str], now: float) -> list[str]:
        """Return the packages that have been without a name for long enough, by id."""
        unnamed = set(present) - self._used()
        return sorted(unnamed - grace.granted(unnamed, now))

    async def _tidy_topics(self, now: float) -> None:
        namespace = "/".join(self.topic_prefix.split("/")[2:4])
        topics = await self.admin.topics(namespace)
        stored = [name.removeprefix(self.topic_prefix) for name in topics if name.startswith(self.topic_prefix)]
        for package_id in self._expired(self._stored, stored, now):
            async with self.undecided():
                if package_id in self._used() or not self.is_leading():
                    continue
                await self.admin.delete_topic(self.topic_prefix + package_id)
            _log.info("removed package %s, which no function names", package_id)
