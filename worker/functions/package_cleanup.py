"""Cleanup of unreferenced packages: local copies on every worker, and package topics on the leader.

Installed requirements are removed once no package on this machine needs them.

A package is stored before the record that references it, so unreferenced packages are retained for an hour. A package
whose deployment was rejected is removed immediately. The hour is counted in memory, and restarts with the process and
with each leader change.

A package may become referenced at any time, even after the hour. The leader therefore removes its topic only after
another check, while no change can be decided. A request that references the package later checks whether it still
exists, and stores it again if necessary.
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
    """Removes unreferenced packages every few minutes.

    Attributes:
        packages: packages on this machine.
        admin: client for the broker's REST interface.
        topic_prefix: prefix of package topics.
        named: returns the ids of the referenced packages.
        is_leading: returns whether this worker is the leader, which removes topics.
        undecided: context managers that each block changes of one kind of record that references packages.
        installer: installs the requirements of packages on this machine.
        isolation: manages per-user copies of packages and requirements; None if there are none.
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

    _digests: dict[str, str] = field(default_factory=dict, init=False)  # by package id; packages never change

    def notice(self, package_ids: Iterable[str]) -> None:
        """Restart the hour for packages that are or were referenced, even if only between two checks."""
        ids = set(package_ids)
        self._local.forget(ids)
        self._stored.forget(ids)

    async def run(self) -> None:
        """Clean up periodically until cancelled."""
        while True:
            await self.tidy(monotonic())
            await asyncio.sleep(PERIOD_S)

    async def refused(self, package_id: str) -> None:
        """Remove the local copy of a package whose deployment was rejected, unless it is in use."""
        if package_id in self._used():
            return
        # The check and the withdrawal run without an await between them; later users unpack the package again.
        doomed = self.packages.withdraw(package_id)
        for directory in doomed:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        if self.isolation is not None:
            await asyncio.to_thread(self.isolation.forget_package, package_id)

    async def tidy(self, now: float) -> None:
        """Remove packages that have been unreferenced for long enough."""
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
            _log.warning("cannot remove unreferenced packages; retrying later: %s", exc)

    def _remove_local(self, package_id: str) -> None:
        self.packages.remove_local(package_id)
        if self.isolation is not None:
            self.isolation.forget_package(package_id)

    def _remove_requirements(self) -> None:
        """Remove requirements that no local package needs, unless a running instance still uses them."""
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
        """Return the ids of the packages that have been unreferenced for long enough."""
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
            _log.info("removed unreferenced package %s", package_id)


def _digest(package: Path) -> str:
    requirements = requirements_of(package)
    return "none" if requirements is None else digest_of(requirements)
