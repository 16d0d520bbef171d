"""Cleanup of packages that no function names: on this machine, and on the leader of their topics.

What was installed for the requirements of packages goes when none of the packages on this machine asks for it.

A package is there before the record that names it; so one without a name gets an hour. One whose deployment was refused
goes at once. The hour is counted in memory: whoever begins to lead, or starts, counts anew.

A package that has been without a name for an hour may get one at any time. So a topic is removed while no change can be
decided, after one more look; whoever names the package afterwards looks whether it is still there, and stores it again.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from ...errors import MagnetarError
from ...instance.loading.loader import requirements_of
from ...instance.loading.requirements import Installer, digest_of
from ...membership.grace_period import GracePeriod
from ...metadata.packages import PackageStore
from ...runtime.isolation.places import Isolation
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
        undecided: each keeps changes of something that names packages from being decided meanwhile.
        installer: of requirements of packages on this machine.
        isolation: has packages and requirements for each user; None: nobody else has.
    """

    packages: PackageStore
    admin: BrokerAdmin
    topic_prefix: str
    named: Callable[[], set[str]]
    is_leading: Callable[[], bool]
    undecided: Sequence[Callable[[], AbstractAsyncContextManager[None]]]
    installer: Installer
    isolation: Isolation | None = None
    _local: GracePeriod = field(default_factory=lambda: GracePeriod(KEEP_UNNAMED_S), init=False)
    _stored: GracePeriod = field(default_factory=lambda: GracePeriod(KEEP_UNNAMED_S), init=False)

    _digests: dict[str, str] = field(default_factory=dict, init=False)  # of packages that never change, by id

    def notice(self, package_ids: Iterable[str]) -> None:
        """Begin anew with packages that are named, or were until now; perhaps between two looks only."""
        ids = set(package_ids)
        self._local.forget(ids)
        self._stored.forget(ids)

    async def run(self) -> None:
        """Tidy up until cancelled."""
        while True:
            await self.tidy(monotonic())
            await asyncio.sleep(PERIOD_S)

    async def refused(self, package_id: str) -> None:
        """Remove from this machine a package whose deployment was refused, unless something else needs it."""
        if package_id in self._used():
            return
        # Nobody can begin to use it between these lines; whoever does so afterwards unpacks it again.
        doomed = self.packages.withdraw(package_id)
        for directory in doomed:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        if self.isolation is not None:
            await asyncio.to_thread(self.isolation.forget_package, package_id)

    async def tidy(self, now: float) -> None:
        """Remove what has been without a name for long enough."""
        local = await asyncio.to_thread(self.packages.local_ids)
        for package_id in self._expired(self._local, local, now):
            if package_id in self._used() or not self._local.is_over(package_id, now):
                continue
            await asyncio.to_thread(self._remove_local, package_id)
        await asyncio.to_thread(self._remove_requirements)
        if not self.is_leading():
            self._stored.restart()
            return
        try:
            await self._tidy_topics(now)
        except MagnetarError as exc:
            _log.warning("packages that nothing names could not be removed, trying again later: %s", exc)

    def _remove_local(self, package_id: str) -> None:
        self.packages.remove_local(package_id)
        if self.isolation is not None:
            self.isolation.forget_package(package_id)

    def _remove_requirements(self) -> None:
        """Remove what was installed for no package that is here, unless an instance is still running with it."""
        here = {package_id: self.packages.directory_of(package_id) for package_id in self.packages.local_ids()}
        self._digests = {
            package_id: self._digests.get(package_id) or _digest(directory) for package_id, directory in here.items()
        }
        needed = set(self._digests.values())
        for installer in (self.installer, *(self.isolation.installers() if self.isolation is not None else ())):
            installer.remove_others(needed)

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
            async with AsyncExitStack() as stack:
                for undecided in self.undecided:
                    await stack.enter_async_context(undecided())
                is_over = self._stored.is_over(package_id, now)
                if package_id in self._used() or not is_over or not self.is_leading():
                    continue
                await self.admin.delete_topic(self.topic_prefix + package_id)
            _log.info("removed package %s, which no function names", package_id)


def _digest(package: Path) -> str:
    requirements = requirements_of(package)
    return "none" if requirements is None else digest_of(requirements)
