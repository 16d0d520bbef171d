"""Local runs: the instances of one component in the foreground, without a worker, until they are stopped.

A `RuntimeManager` runs and restarts them as on a worker, but from a record that is not stored. Their files are in a
temporary directory, except installed requirements, which later runs reuse. No lock prevents a second run of the same
name; that is the caller's responsibility.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import FunctionLoadError, PackageError
from ..instance.loading.requirements import Installed, Installer
from ..instance.logs.file import LogFollower
from ..instance.spec import InstanceSpec
from ..metadata.packages_extract import SUFFIXES, extract
from ..security.credentials.client_security import ClientSecurity
from ..tasks import race
from ..wire.functions_pb2 import Assignment, FunctionDetails, FunctionMetaData, Instance, MetricsData
from .foreground import run_here, without_counts
from .interface import Runtime
from .manager import InstanceEnvironment, RuntimeManager
from .process.runtime import ProcessRuntime
from .requirements import Installations
from .thread.runtime import ThreadRuntime

POLL_S = 0.2
"""Interval for checking logs and status for changes."""
WORKER_ID = "localrun"

ReadMetrics = Callable[[int], Awaitable[MetricsData]]
"""Returns an instance's counters by its number; raises KeyError if it is not running here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRun:
    """Settings of a local run.

    Attributes:
        details: the component's record.
        package: its code, a .py, .zip or .whl file; None for a built-in connector.
        service_url: the broker's URL.
        admin_url: the broker's REST interface URL.
        state_url: the state store's URL; empty for none.
        state_call: location in the source where the code uses its state; empty if it does not.
        first_instance: number of the first instance.
        secrets_provider: class that resolves secrets; empty for the default.
        secrets_config: settings of the secrets provider as JSON; empty for none.
        security: credentials and TLS settings for the broker and its REST interface.
    """

    details: FunctionDetails
    package: Path | None
    service_url: str
    admin_url: str
    state_url: str = ""
    state_call: str = ""
    first_instance: int = 0
    secrets_provider: str = ""
    secrets_config: str = ""
    security: ClientSecurity = field(default_factory=ClientSecurity)

    @property
    def numbers(self) -> range:
        """Numbers of its instances."""
        return range(self.first_instance, self.first_instance + self.details.parallelism)

    @property
    def is_direct(self) -> bool:
        """Whether it is a single function instance without a separate process, as `run_direct` requires."""
        is_function = self.details.componentType not in (FunctionDetails.SOURCE, FunctionDetails.SINK)
        return is_function and self.details.parallelism == 1 and not self.has_processes

    @property
    def has_processes(self) -> bool:
        """Whether each instance is a separate process."""
        return '"process"' in self.details.customRuntimeOptions

    async def run_direct(
        self,
        stop: asyncio.Event,
        show: Callable[[str], None],
        warn: Callable[[str], None],
        offer: Callable[[ReadMetrics], None],
    ) -> str:
        """Run the only instance in this process; return why it ended, empty if it was stopped (see `run_here`).

        ``offer`` is called before the start, with a function that returns the counters.

        Raises:
            PackageError: the package cannot be used.
        """
        assert self.package is not None
        directory = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="magnetar-localrun-"))
        try:
            package = await asyncio.to_thread(unpacked, self.package, directory)
            installed = await race(self._install(package, warn), _none_when(stop))
            if stop.is_set():
                return ""
            libraries = None if installed is None else installed.directory
            spec = InstanceSpec(
                metadata=FunctionMetaData(functionDetails=self.details), instance_id=self.first_instance,
                package=package, libraries=libraries, worker_id=WORKER_ID, service_url=self.service_url,
                admin_url=self.admin_url, state_url=self.state_url, log_file=directory / "log",
                control_socket=directory / "socket", last_words=directory / "last-words",
                secrets_provider=self.secrets_provider, secrets_config=self.secrets_config, security=self.security,
            )  # fmt: skip

            def take(counters: Callable[[], MetricsData]) -> None:
                async def read(_: int) -> MetricsData:
                    return counters()

                offer(read)

            return await run_here(spec, stop, show, warn, take)
        except FunctionLoadError as error:
            return str(error)
        finally:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    async def _install(self, package: Path, warn: Callable[[str], None]) -> Installed | None:
        def tell(doing: str) -> None:
            if doing:
                warn(doing)

        name = f"{self.details.tenant}/{self.details.namespace}/{self.details.name}"
        return await Installations(Installer(cache_directory())).of(name, package, tell)

    async def run(
        self,
        stop: asyncio.Event,
        show: Callable[[int, str], None],
        warn: Callable[[int, str], None],
        offer: Callable[[ReadMetrics], None],
    ) -> None:
        """Run all instances until ``stop`` is set.

        Args:
            stop: ends them.
            show: called with an instance number and a line of its log.
            warn: called with an instance number and the reason why it is blocked, whenever it changes.
            offer: called once, before they start, with a function that returns their counters.

        Raises:
            PackageError: the package cannot be used.

        Cancellation: stops the instances.
        """
        directory = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="magnetar-localrun-"))
        try:
            package = await asyncio.to_thread(unpacked, self.package, directory) if self.package else Path()
            await self._run(package, directory, stop, show, warn, offer)
        finally:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    async def _run(
        self,
        package: Path,
        directory: Path,
        stop: asyncio.Event,
        show: Callable[[int, str], None],
        warn: Callable[[int, str], None],
        offer: Callable[[ReadMetrics], None],
    ) -> None:
        environment = InstanceEnvironment(
            worker_id=WORKER_ID, service_url=self.service_url, admin_url=self.admin_url, state_url=self.state_url,
            data_dir=directory, secrets_provider=self.secrets_provider, secrets_config=self.secrets_config,
            security=self.security,
        )  # fmt: skip
        is_process = self.has_processes
        runtime: Runtime = ProcessRuntime() if is_process else ThreadRuntime(self.service_url)

        async def fetch(_: object) -> Path:
            return package

        runtimes = {"process" if is_process else "thread": runtime}
        manager = RuntimeManager(runtimes, fetch, environment, installer=Installer(cache_directory()))
        metadata = FunctionMetaData(functionDetails=self.details)
        name = f"{self.details.tenant}/{self.details.namespace}/{self.details.name}"
        assignments = {
            f"{name}:{number}": Assignment(
                instance=Instance(functionMetaData=metadata, instanceId=number), workerId=WORKER_ID
            )
            for number in self.numbers
        }
        offer(lambda number: manager.metrics(f"{name}:{number}"))
        followers = [LogFollower(manager.log_file(key)) for key in assignments]
        troubles = [""] * len(assignments)

        async def look() -> None:
            for number, (key, follower) in enumerate(zip(assignments, followers, strict=True)):
                shown = self.first_instance + number
                for line in (await asyncio.to_thread(follower.read)).splitlines():
                    show(shown, line)
                trouble = (await manager.status(key)).failureException
                kind = without_counts(trouble)
                if kind != troubles[number]:
                    troubles[number] = kind
                    if trouble:
                        warn(shown, trouble)

        try:
            await manager.apply(assignments)
            while not stop.is_set():
                await look()
                try:
                    async with asyncio.timeout(POLL_S):
                        await stop.wait()
                except TimeoutError:
                    pass
        finally:
            await manager.close()
        for number, follower in enumerate(followers, self.first_instance):
            for line in (await asyncio.to_thread(follower.read)).splitlines():
                show(number, line)


async def _none_when(stop: asyncio.Event) -> None:
    await stop.wait()


def cache_directory() -> Path:
    """Return the directory for requirements of local runs, which later runs of this user reuse."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "magnetar" / "requirements"


def unpacked(package: Path, directory: Path) -> Path:
    """Return a package in the form used by instances: a .py file, or a directory of modules. Blocking.

    Args:
        package: the file, or a directory of modules, which is returned as it is.
        directory: directory where archives are extracted.

    Raises:
        PackageError: the package is invalid or cannot be read.
    """
    if package.is_dir():
        return package.resolve()
    if not package.is_file():
        raise PackageError(f"file {package} does not exist")
    if package.suffix not in SUFFIXES:
        raise PackageError(f"unsupported package {package.name}: expected a {', '.join(SUFFIXES)} file")
    if package.suffix == ".py":
        return package.resolve()
    extract(package, directory / "package", package.name)
    return directory / "package"
