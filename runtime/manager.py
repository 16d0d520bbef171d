"""The runtime manager: makes the instances on this worker match the assignments.

Design: `apply` only compares and never waits for an instance. Each instance has its own supervisor, so instances with
slow packages or that fail to start or stop do not delay others. A changed instance is stopped and restarted under a new
supervisor, which waits until the old one has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..config.conversion import runtime_options
from ..errors import FunctionLoadError, InvalidConfig, RunRefused
from ..instance.examination.package import Question
from ..instance.examination.source import Source, SourceQuestion, read_source
from ..instance.identity import table_of
from ..instance.loading.requirements import Installer
from ..instance.logs.file import open_log
from ..instance.spec import Environment, InstanceSpec
from ..instance.system_user import SystemUser
from ..instance.trees import remove_tree
from ..security.credentials.client_security import ClientSecurity
from ..state.access import TableKey, with_token
from ..tasks import TaskSet
from ..wire.functions_pb2 import (
    STOPPED,
    Assignment,
    FunctionMetaData,
    FunctionStatus,
    MetricsData,
    PackageLocationMetaData,
)
from .interface import Examines, Instance, Runtime
from .isolation.places import Isolation
from .requirements import Installations, lasting_installer
from .socket_directory import SocketDirectory
from .supervisor import Supervisor

log = logging.getLogger(__name__)

_Q = TypeVar("_Q", Question, SourceQuestion)
FetchPackage = Callable[[PackageLocationMetaData], Awaitable[Path]]
DEFAULT_RUNTIME = "process"
WITH_LIBRARIES = ("process", "thread")
"""Runtimes whose requirements the manager installs."""
NO_PACKAGE = Path()
"""Package of built-in connectors."""
STOP_GRACE_S = 10.0
INCARNATION_FILE = ".function"
"""File next to a function's logs that contains the uuid of its creation."""
INCARNATION_BYTES_MAX = 256
NAME_BYTES_MAX = 200  # file names have at most 255 bytes, and the instance's number and `.log.1` are appended
CLOSE_GRACE_S = 5.0  # a server has 10 s for its whole shutdown


@dataclass(frozen=True, kw_only=True)
class InstanceEnvironment(Environment):
    """Settings and file locations shared by a worker's instances.

    Attributes:
        data_dir: directory for instances' logs, sockets and exit reasons, and for installed requirements.
        state_key: signs the token of each function's state; None if tokens are not required.
        security_of: returns the credentials of a function's instances, blocking; None if all use the same.
    """

    data_dir: Path
    state_key: TableKey | None = None
    security_of: Callable[[FunctionMetaData, SystemUser | None], ClientSecurity] | None = None

    def state_url_of(self, metadata: FunctionMetaData) -> str:
        """Return a state store URL that grants a function's instances access only to its own state."""
        if self.state_key is None or not self.state_url:
            return self.state_url
        return with_token(self.state_url, self.state_key.table_token(table_of(metadata)))


@dataclass(slots=True)
class _Held:
    """An assignment and the supervisor that runs it; None if it is stopped."""

    assignment: Assignment
    supervisor: Supervisor | None
    predecessor: Supervisor | None = None


class RuntimeManager:
    """All instances of one worker."""

    def __init__(
        self,
        runtimes: Mapping[str, Runtime],
        fetch_package: FetchPackage,
        environment: InstanceEnvironment,
        clock: Callable[[], float] = time.monotonic,
        installer: Installer | None = None,
        isolation: Isolation | None = None,
    ) -> None:
        """Create a manager; nothing runs before `apply`.

        Args:
            runtimes: runtimes by ``runtimeEnv`` value.
            fetch_package: returns a .py file or the directory of a package's modules.
            environment: settings of all instances.
            clock: monotonic seconds, for the pauses between restarts.
            installer: installs requirements; by default `lasting_installer` of the environment's directory.
            isolation: users and directories of instances; None to run them as this process's user.
        """
        self._isolation = isolation
        self._discard = remove_tree if isolation is None else isolation.discard
        self._runtimes = dict(runtimes)
        self._fetch_package = fetch_package
        self._environment = environment
        self._clock = clock
        self._held: dict[str, _Held] = {}
        self._past: dict[
            str, Supervisor
        ] = {}  # supervisors of instances that left this worker and may still be stopping
        self._stopping: dict[Supervisor, str] = {}
        self._tasks = TaskSet(f"instances of worker {environment.worker_id}")
        self._is_warm = False
        self._log_changes = asyncio.Lock()
        self._installations = Installations(installer or lasting_installer(environment.data_dir))
        self._sockets = SocketDirectory(environment.data_dir / "run" / _digest(environment.worker_id))
        if isolation is not None:
            isolation.open_run(self._sockets.path)

    async def apply(self, assignments: Mapping[str, Assignment]) -> None:
        """Start, stop and change instances to match ``assignments``, keyed ``tenant/namespace/name:i``.

        Returns before they are started or stopped.
        """
        gone = [key for key in self._held if key not in assignments]
        await self.change({**dict.fromkeys(gone), **assignments})

    async def change(self, assignments: Mapping[str, Assignment | None]) -> None:
        """Same as `apply`, but only for the given instances.

        Args:
            assignments: assignments keyed ``tenant/namespace/name:i``; None for instances that no longer run here.
        """
        if not self._is_warm:
            self._is_warm = True
            for name, runtime in self._runtimes.items():
                self._tasks.start(runtime.warm_up(), f"warm up {name}", partial(_warm_up_failed, name))
        self._past = {key: supervisor for key, supervisor in self._past.items() if not supervisor.has_ended}
        for key in [key for key, assignment in assignments.items() if assignment is None and key in self._held]:
            gone = self._held.pop(key)
            last = gone.supervisor or gone.predecessor
            if last is not None:
                self._past[key] = last
            self._end(key, gone.supervisor)
        for key, assignment in assignments.items():
            held = self._held.get(key)
            if assignment is None:
                continue
            if held is not None and held.assignment == assignment:
                continue
            predecessor = self._past.pop(key, None) if held is None else held.supervisor or held.predecessor
            self._end(key, predecessor)
            self._held[key] = self._serve(key, assignment, predecessor)

    async def examine(self, question: Question) -> str | None:
        """Return the result of `interface.Examines`; None also if no runtime can examine packages."""
        try:
            question, user = await self._as_user(question)
        except InvalidConfig:  # creating the function fails with the same reason
            return None
        for runtime in self._runtimes.values():
            if isinstance(runtime, Examines):
                return await runtime.examine(question, user)
        return None

    async def read_source(self, question: SourceQuestion) -> Source | None:
        """Return the result of `interface.Examines`.

        Raises:
            PackageError: something is missing or invalid, or the source is too expensive to read.
            InvalidConfig: the tenant has no system user.
        """
        question, user = await self._as_user(question)
        for runtime in self._runtimes.values():
            if isinstance(runtime, Examines):
                return await runtime.read_source(question, user)
        return await asyncio.to_thread(read_source, question)  # no runtime here can read it in a separate process

    async def _as_user(self, question: _Q) -> tuple[_Q, SystemUser | None]:
        """Make a question's files readable by the tenant's system user; return both, with None for no isolation."""
        if self._isolation is None:
            return question, None
        user = self._isolation.users.of(question.tenant)
        package = await asyncio.to_thread(self._isolation.package_for, user, question.package)
        return question._replace(package=package), user

    def _serve(self, key: str, assignment: Assignment, predecessor: Supervisor | None) -> _Held:
        instance = assignment.instance
        copy = Assignment.FromString(assignment.SerializeToString())  # the caller may reuse its dictionary
        if instance.functionMetaData.instanceStates.get(instance.instanceId) == STOPPED:
            return _Held(copy, None, predecessor)
        start = self._starter(instance.functionMetaData.functionDetails.customRuntimeOptions)
        supervisor = Supervisor(key, start, partial(self._make_spec, key, copy), self._clock, predecessor)
        supervisor.begin()
        return _Held(copy, supervisor)

    def _starter(self, options: str) -> Callable[[InstanceSpec], Coroutine[Any, Any, Instance]]:
        """Return the start function of a record's runtime; if the runtime is missing, one that raises the reason."""
        try:
            name = runtime_options(options).get("runtime_env") or DEFAULT_RUNTIME
            return self._runtimes[name].start
        except InvalidConfig as error:
            reason = str(error)
        except KeyError:
            reason = f"this worker has no runtime {name!r}: expected {', '.join(self._runtimes)}"

        async def refuse(_: InstanceSpec) -> Instance:
            raise FunctionLoadError(reason)

        return refuse

    def _end(self, key: str, supervisor: Supervisor | None) -> None:
        if supervisor is not None and supervisor not in self._stopping:
            self._stopping[supervisor] = key
            self._tasks.start(self._stop(supervisor), f"stop {key}")

    async def _stop(self, supervisor: Supervisor) -> None:
        try:
            await supervisor.stop(STOP_GRACE_S)
        finally:
            self._stopping.pop(supervisor, None)

    async def _make_spec(self, key: str, assignment: Assignment, supervisor: Supervisor) -> InstanceSpec:
        metadata = assignment.instance.functionMetaData
        has_transform = metadata.HasField("transformFunctionPackageLocation")  # built-in connector
        package = await self._fetch_package(
            metadata.transformFunctionPackageLocation if has_transform else metadata.packageLocation
        )
        user = installer = None
        if self._isolation is not None:
            user = self._isolation.users.of(metadata.functionDetails.tenant)
            if package != NO_PACKAGE:
                package = await asyncio.to_thread(self._isolation.package_for, user, package)
                installer = self._isolation.installer_for(user)
        if package != NO_PACKAGE and self._installs(metadata.functionDetails.customRuntimeOptions):
            tell = partial(setattr, supervisor, "waits_for")
            supervisor.installed = await self._installations.of(key.rpartition(":")[0], package, tell, installer)
        async with self._log_changes:
            await asyncio.to_thread(self._open_logs, self.log_file(key).parent, metadata.functionUuid, user)
        run = self._sockets.path / _digest(key)
        environment, security = self._environment, self._environment.security
        if environment.security_of is not None:
            security = await asyncio.to_thread(environment.security_of, metadata, user)
        return InstanceSpec(
            metadata=metadata,
            instance_id=assignment.instance.instanceId,
            package=package,
            libraries=None if supervisor.installed is None else supervisor.installed.directory,
            log_file=self.log_file(key),
            control_socket=run.with_name(f"{run.name}.sock") if user is None else run / "sock",
            last_words=run.with_name(f"{run.name}.txt") if user is None else run / "words",
            user=user,
            home=None if user is None else run,
            died_of=supervisor.death,
            **{
                **{field.name: getattr(environment, field.name) for field in fields(Environment)},
                "state_url": environment.state_url_of(metadata),
                "security": security,
            },
        )

    def _open_logs(self, directory: Path, incarnation: str, user: SystemUser | None) -> None:
        """Create a function's log directory, owned by its user if any, removing logs of an earlier namesake."""
        _begin_incarnation(directory, incarnation, self._discard)
        if user is not None and self._isolation is not None:
            self._isolation.open_logs(user, directory)

    def _installs(self, options: str) -> bool:
        """Return whether requirements are installed here rather than by the runtime named in a record's options."""
        try:
            return (runtime_options(options).get("runtime_env") or DEFAULT_RUNTIME) in WITH_LIBRARIES
        except InvalidConfig:  # the instance will not start, and will report the reason
            return False

    def log_file(self, key: str) -> Path:
        """Return the path of an instance's log, which may not exist."""
        function, _, instance_id = key.rpartition(":")
        directory = self._log_directory(function)
        return directory / f"{directory.name}-{instance_id}.log"

    @property
    def _logs(self) -> Path:
        return self._environment.data_dir / "logs" / "functions"

    def _log_directory(self, function: str) -> Path:
        return self._logs.joinpath(*map(_file_name, function.split("/")))

    async def remove_logs(self, functions: Collection[str]) -> bool:
        """Remove the logs of functions that no longer exist, except those with instances still running here.

        Args:
            functions: existing functions, ``tenant/namespace/name``.

        Returns:
            whether all these logs were removed; False if instances are still running: retry later.
        """
        async with self._log_changes:  # new instances wait until old logs are removed
            here = {key.rpartition(":")[0] for key in (*self._held, *self._stopping.values())}
            kept = {self._log_directory(function) for function in here.union(functions)}
            await asyncio.to_thread(_remove_others, self._logs, kept, self._discard)
        return here.issubset(functions)

    async def status(self, key: str) -> FunctionStatus:
        """Return the status of an instance.

        Raises:
            KeyError: the instance is not assigned to this worker.
        """
        held = self._held[key]
        supervisor = held.supervisor or held.predecessor
        status = FunctionStatus() if supervisor is None else await supervisor.status()
        status.instanceId = key.rpartition(":")[2]
        status.workerId = self._environment.worker_id
        return status

    async def deployed(self, key: str) -> tuple[FunctionMetaData, FunctionStatus]:
        """Return an instance's record, and the status of the instance that runs exactly this record.

        Raises:
            KeyError: the instance is not assigned to this worker.
        """
        held = self._held[key]  # record and status must belong together
        status = FunctionStatus() if held.supervisor is None else await held.supervisor.status()
        return held.assignment.instance.functionMetaData, status

    async def metrics(self, key: str) -> MetricsData:
        """Return the counters of an instance.

        Raises:
            KeyError: the instance is not assigned to this worker.
        """
        supervisor = self._held[key].supervisor
        return MetricsData() if supervisor is None else await supervisor.metrics()

    async def ended(self, function: str) -> bool:
        """Wait until a function's stopping instances have ended; return False if one is assigned to run.

        Cancellation: safe.
        """
        held = [one for key, one in self._held.items() if key.rpartition(":")[0] == function]
        if any(one.supervisor is not None for one in held):
            return False
        past = [one for key, one in self._past.items() if key.rpartition(":")[0] == function]
        past += [one.predecessor for one in held if one.predecessor is not None]
        await asyncio.gather(*(supervisor.ended() for supervisor in past))
        return True

    async def restart(self, key: str) -> None:
        """Restart an instance, unless it is stopped.

        Raises:
            KeyError: the instance is not assigned to this worker.
        """
        supervisor = self._held[key].supervisor
        if supervisor is not None:
            await supervisor.restart(STOP_GRACE_S)

    async def begin_run(self, key: str, run_id: str) -> None:
        """Start a run of a triggered function.

        Raises:
            KeyError: the instance is not assigned to this worker.
            RunRefused: another run or a failure prevents it.
        """
        supervisor = self._held[key].supervisor
        if supervisor is None:
            raise RunRefused(f"{key} is stopped: start it with `functions start`")
        await supervisor.begin_run(run_id)

    async def close(self) -> None:
        """Stop all instances."""
        held, self._held = self._held, {}
        supervisors = [one.supervisor for one in held.values() if one.supervisor is not None]
        for outcome in await asyncio.gather(
            *(supervisor.stop(CLOSE_GRACE_S) for supervisor in supervisors), return_exceptions=True
        ):
            if isinstance(outcome, Exception):
                log.error("failed to stop an instance", exc_info=outcome)
        for name, runtime in self._runtimes.items():
            try:
                await runtime.close()
            except Exception:
                log.exception("failed to close the runtime %s", name)
        # The runtime that they wait for was closed.
        await asyncio.gather(*(supervisor.ended() for supervisor in list(self._stopping)))
        await self._tasks.close()
        self._sockets.close()


def _warm_up_failed(name: str, failure: BaseException) -> None:
    """Log the failure; the first instance that needs the runtime retries, and reports the reason in its status."""
    log.warning("failed to warm up the runtime %s, retrying with its first instance: %s", name, failure)


def _begin_incarnation(directory: Path, incarnation: str, discard: Callable[[Path], None]) -> None:
    """Remove the logs of an earlier function of the same name, which was deleted."""
    marker = directory / INCARNATION_FILE
    try:
        with open(open_log(marker, os.O_RDONLY), "rb") as file:
            before = file.read(INCARNATION_BYTES_MAX).decode()
    except (OSError, ValueError):
        before = ""
    if before == incarnation or not incarnation:
        return
    if before:
        discard(directory)
    with contextlib.suppress(OSError):  # on a full disk the next incarnation may keep these logs
        directory.mkdir(parents=True, exist_ok=True)
        with open(open_log(marker, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w", encoding="utf-8") as file:
            file.write(incarnation)


def _remove_others(root: Path, kept: Collection[Path], discard: Callable[[Path], None]) -> None:
    """Remove all directories two levels below a root that are not kept, and parents that become empty."""
    for directory in root.glob("*/*/*"):
        if directory not in kept:
            discard(directory)
    for above in (*root.glob("*/*"), *root.glob("*")):
        with contextlib.suppress(OSError):  # not empty
            above.rmdir()


def _file_name(text: str) -> str:
    """Return a file name for a part of a function's name, shortened if it exceeds the file system's limit."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= NAME_BYTES_MAX:
        return text
    return f"{data[:NAME_BYTES_MAX].decode('utf-8', 'ignore')}-{_digest(text)}"


def _digest(text: str) -> str:
    """Return a short digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:12]
