"""Requirements of instances: installed before they start, and locked until they have ended."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from weakref import WeakValueDictionary

from ..instance.loading.libraries import check_environment, versions
from ..instance.loading.loader import requirements_of
from ..instance.loading.requirements import Installed, Installer
from ..tasks import FairPool

DIRECTORY = "requirements"


def lasting_installer(data_dir: Path) -> Installer:
    """Return an installer in a worker's directory, whose installations remain until `PackageCleanup` removes them."""
    return Installer(data_dir / DIRECTORY, unused_s=math.inf)


AT_ONCE, AT_ONCE_OF_TENANT = 3, 2
"""Maximum number of concurrent pip runs, in total and per tenant; tenants are served in turn."""


class Installations:
    """The installed requirements of a worker's instances."""

    def __init__(self, installer: Installer) -> None:
        """Create an empty set of installations with a default installer."""
        self._installer = installer
        self._places = FairPool(AT_ONCE, AT_ONCE_OF_TENANT)
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    async def of(
        self, function: str, package: Path, tell: Callable[[str], None], installer: Installer | None = None
    ) -> Installed | None:
        """Install a function's requirements, and return them, or None if it has none.

        Args:
            function: ``tenant/namespace/name``.
            package: directory of its modules, or a file.
            tell: called with a progress message, and with an empty one at the end.
            installer: overrides the default installer.

        Raises:
            FunctionLoadError: they cannot be installed, or the Python environment, which takes precedence, contains
                another version of one of them.

        Cancellation: terminates pip.
        """
        requirements = await asyncio.to_thread(requirements_of, package)
        if requirements is None:
            return None
        tenant = function.partition("/")[0]
        installer = replace(installer or self._installer, tenant=tenant)
        installed = await asyncio.to_thread(installer.find, requirements)
        if installed is None:
            tell(f"installing the requirements of {function} listed in {requirements.name}")
            try:
                installed = await self._install(installer, requirements)
            finally:
                tell("")
        brought = await asyncio.to_thread(versions, installed.directory)
        await asyncio.to_thread(check_environment, function, brought)
        return installed

    async def _install(self, installer: Installer, requirements: Path) -> Installed:
        # Instances that wait for the same installation use a single slot.
        target = await asyncio.to_thread(installer.target_of, requirements)
        lock = self._locks.setdefault(target, asyncio.Lock())
        async with lock, self._places.turn(installer.tenant):
            is_over = False
            installer = replace(installer, is_wanted=lambda: not is_over)
            try:
                return await asyncio.to_thread(installer.install, requirements)
            finally:
                is_over = True
