"""The runtime manager: makes what runs on this worker what the assignments say.

Design: `apply` only compares and never waits for an instance. Each instance has a supervisor of its own, so a slow
package, a function that does not stop or one that cannot start delays no other. What changed is stopped and started
again under a new supervisor that waits for the old one's end.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..api.config_fields import runtime_options
from ..errors import InvalidConfig, RunRefused
from ..wire.functions_pb2 import STOPPED, Assignment, FunctionStatus, MetricsData, PackageLocationMetaData
from .control import SOCKET_PATH_BYTES_MAX
from .no_runtime import NoRuntime
from .ports import Runtime
from .spec import InstanceSpec
from .supervisor import Supervisor

log = logging.getLogger(__name__)

FetchPackage = Callable[[PackageLocationMetaData], Awaitable[Path]]
DEFAULT_RUNTIME = "process"
STOP_GRACE_S = 10.0
CLOSE_GRACE_S = 5.0  # a server told to end has 10 s for everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all instances of a worker have in common.

    Attributes:
        worker_id: shown in status.
        service_url: where the broker listens.
        admin_url: where the admin REST listens.
        data_dir: logs, sockets and last words of instances are kept below.
        cluster: name of the cluster.
        state_url: the table service; empty if the cluster keeps no state.
        locks_topic: keeps a lock for each instance; empty if no other worker can have the same one.
    """

    worker_id: str
    service_url: str
    admin_url: str
    data_dir: Path
    cluster: str = "standalone"
    state_url: str = ""
    locks_topic: str = ""


@dataclass(slots=True)
class _Held:
    """One assignment and who serves it; nobody if it is stopped."""

    assignment: Assignment
    supervisor: Supervisor | None
    predecessor: Supervisor | None = None


class RuntimeManager:
    """All instances of one worker."""

    def __init__(
        self,
        runtimes: Mapping[str, Runtime],
        fetch_package: FetchPackage,
        surroundings: Surroundings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing runs before `apply`.

        Args:
            runtimes: by the names that ``runtimeEnv`` takes.
            fetch_package: returns a .py file or the directory of a package's modules.
            surroundings: of all instances.
            clock: rising seconds, for the waits between restarts.
        """
        self._runtimes = dict(runtimes)
        self._fetch_package = fetch_package
        self._around = surroundings
        self._clock = clock
        self._held: dict[str, _Held] = {}
        self._past: dict[str, Supervisor] = {}  # of instances that left this worker; they may still be stopping
        self._stopping: set[asyncio.Task[None]] = set()
        self._warming: asyncio.Task[None] | None = None
        self._short_dir: str | None = None
        self._run_dir = self._make_run_dir()

    def _make_run_dir(self) -> Path:
        """Return a directory whose paths are short enough for sockets."""
        wanted = self._around.data_dir / "run" / _digest(self._around.worker_id)
        if len(os.fsencode(wanted)) + 1 + len(f"{_digest('')}.sock") > SOCKET_PATH_BYTES_MAX:
            self._short_dir = tempfile.mkdtemp(prefix="magnetar-")
            wanted = Path(self._short_dir)
        wanted.mkdir(parents=True, exist_ok=True, mode=0o700)
        return wanted

    async def apply(self, assignments: Mapping[str, Assignment]) -> None:
        """Start, stop and change instances until they are those of ``assignments``, keyed ``tenant/namespace/name:i``.

        Returns before they are started or stopped.
        """
        if self._warming is None:
            self._warming = asyncio.create_task(self._warm_up())
        self._past = {key: supervisor for key, supervisor in self._past.items() if not supervisor.has_ended}
        for key in [key for key in self._held if key not in assignments]:
            gone = self._held.pop(key)
            last = gone.supervisor or gone.predecessor
            if last is not None:
                self._past[key] = last
            self._end(gone.supervisor)
        for key, assignment in assignments.items():
            held = self._held.get(key)
            if held is not None and held.assignment == assignment:
                continue
            predecessor = self._past.pop(key, None) if held is None else held.supervisor or held.predecessor
            self._end(predecessor)
            self._held[key] = self._serve(key, assignment, predecessor)

    async def _warm_up(self) -> None:
        await asyncio.gather(*(runtime.warm_up() for runtime in self._runtimes.values()))

    def _serve(self, key: str, assignment: Assignment, predecessor: Supervisor | None) -> _Held:
        instance = assignment.instance
        copy = Assignment.FromString(assignment.SerializeToString())  # the caller may go on using its own
        if instance.functionMetaData.instanceStates.get(instance.instanceId) == STOPPED:
            return _Held(copy, None, predecessor)
        runtime = self._runtime_of(instance.functionMetaData.functionDetails.customRuntimeOptions)
        supervisor = Supervisor(key, runtime, partial(self._make_spec, key, copy), self._clock, predecessor)
        supervisor.begin()
        return _Held(copy, supervisor)

    def _runtime_of(self, options: str) -> Runtime:
        """Return the runtime that a record asks for, or one with which its instance says why it cannot start."""
        try:
            name = runtime_options(options) or DEFAULT_RUNTIME
            return self._runtimes[name]
        except InvalidConfig as error:
            return NoRuntime(str(error))
        except KeyError:
            return NoRuntime(f"this worker has no runtime {name!r}; it has {', '.join(self._runtimes)}")

    def _end(self, supervisor: Supervisor | None) -> None:
        if supervisor is not None:
            task = asyncio.create_task(supervisor.stop(STOP_GRACE_S))
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)

    async def _make_spec(self, key: str, assignment: Assignment) -> InstanceSpec:
        metadata = assignment.instance.functionMetaData
        package = await self._fetch_package(metadata.packageLocation)
        return InstanceSpec(
            metadata=metadata,
            instance_id=assignment.instance.instanceId,
            package=package,
            worker_id=self._around.worker_id,
            service_url=self._around.service_url,
            admin_url=self._around.admin_url,
            log_file=self.log_file(key),
            control_socket=self._run_dir / f"{_digest(key)}.sock",
            last_words=self._run_dir / f"{_digest(key)}.txt",
            cluster=self._around.cluster,
            state_url=self._around.state_url,
            locks_topic=self._around.locks_topic,
        )

    def log_file(self, key: str) -> Path:
        """Return where the log of an instance is, or would be."""
        function, _, instance_id = key.rpartition(":")
        name = function.rpartition("/")[2]
        return self._around.data_dir / "logs" / "functions" / function / f"{name}-{instance_id}.log"

    async def status(self, key: str) -> FunctionStatus:
        """Return how an instance is.

        Raises:
            KeyError: it is not assigned to this worker.
        """
        held = self._held[key]
        supervisor = held.supervisor or held.predecessor
        status = FunctionStatus() if supervisor is None else await supervisor.status()
        status.instanceId = key.rpartition(":")[2]
        status.workerId = self._around.worker_id
        return status

    async def metrics(self, key: str, *, reset: bool = False) -> MetricsData:
        """Return the counters of an instance.

        Raises:
            KeyError: it is not assigned to this worker.
        """
        supervisor = self._held[key].supervisor
        return MetricsData() if supervisor is None else await supervisor.metrics(reset)

    async def ended(self, function: str) -> bool:
        """Wait for the end of a function's instances that are to be stopped; returns False if one is to run.

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
        """Stop an instance and start it again; one that is stopped stays so.

        Raises:
            KeyError: it is not assigned to this worker.
        """
        supervisor = self._held[key].supervisor
        if supervisor is not None:
            await supervisor.restart(STOP_GRACE_S)

    async def begin_run(self, key: str, run_id: str) -> None:
        """Begin a run of a function that works in runs.

        Raises:
            KeyError: it is not assigned to this worker.
            RunRefused: as `Triggered.begin_run`.
        """
        supervisor = self._held[key].supervisor
        if supervisor is None:
            raise RunRefused(f"{key} is stopped; start it with functions start")
        await supervisor.begin_run(run_id)

    async def close(self) -> None:
        """Stop all instances."""
        held, self._held = self._held, {}
        supervisors = [one.supervisor for one in held.values() if one.supervisor is not None]
        await asyncio.gather(*(supervisor.stop(CLOSE_GRACE_S) for supervisor in supervisors))
        if self._warming is not None:
            await asyncio.gather(self._warming, return_exceptions=True)
        for runtime in self._runtimes.values():
            await runtime.close()
        if self._stopping:
            await asyncio.wait(self._stopping)
        if self._short_dir is not None:
            shutil.rmtree(self._short_dir, ignore_errors=True)


def _digest(text: str) -> str:
    """Return a short name for a text of any length."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
