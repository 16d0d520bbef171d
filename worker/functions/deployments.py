"""Progress of a function's newest version on all workers; clients and the leader wait for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import MagnetarError, RequestRefused
from ...metadata.functions import FunctionMetadataManager
from ...web.deployments import FAILED, REPLACED, ROLLED_BACK, RUNNING, STARTING, STOPPED
from ...wire.functions_pb2 import FunctionMetaData
from .history import earlier_version, newest_version, to_run
from .instances import Instances
from .service import FunctionName

FAILED_RESTARTS = 3
"""Number of failed restarts, which take about a second, after which a version counts as failed.

During a broker outage, instances wait instead of restarting."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a version.

    Attributes:
        state: as in `web.deployments`: starting, running, stopped or failed.
        num_instances: number of instances that should run.
        num_running: number of running instances.
        error: error of an instance that is not running, with its traceback.
        restarts: number of restarts of each instance.
    """

    state: str
    num_instances: int
    num_running: int
    error: str = ""
    restarts: tuple[int, ...] = ()


def judge(metadata: FunctionMetaData, found: Mapping[int, Json], waits: str = "") -> Progress:
    """Return the progress of a record's version; no side effects.

    Args:
        metadata: the record.
        found: workers' reports about each instance. Reports about other versions, or a deleted function with the same
            name, are ignored.
        waits: description of a pending state change that the instances wait for.
    """
    wanted = to_run(metadata)
    if metadata.HasField("stateChange"):
        return Progress(STARTING, len(wanted), 0, waits)
    if not wanted:
        return Progress(STOPPED, 0, 0)
    own = [_of_version(metadata, found.get(number)) for number in wanted]
    down = [one for one in own if not one.get("running")]
    restarts = tuple(int(one.get("numRestarts", 0)) for one in own)
    failing = [one for one in down if one.get("error") and one.get("numRestarts", 0) >= FAILED_RESTARTS]
    state = FAILED if failing else STARTING if down else RUNNING
    error = next((str(one["error"]) for one in (*failing, *down) if one.get("error")), "")
    return Progress(state, len(own), len(own) - len(down), error, restarts)


def _of_version(metadata: FunctionMetaData, one: Json | None) -> Json:
    if one is None:
        return {}
    if "version" not in one:  # its worker does not answer, so the version is unknown
        return {"error": one.get("error", "")}
    is_own = one["functionUuid"] == metadata.functionUuid and one["version"] == metadata.version
    return one if is_own else {}


class DeploymentStates:
    """Reports the progress of deployments."""

    def __init__(
        self,
        metadata: FunctionMetadataManager,
        instances: Instances,
        waits_for: Callable[[FunctionMetaData], str] = lambda _: "",
    ) -> None:
        """Create the reporter; `waits_for` returns why no instance of a function runs yet, or an empty string."""
        self._metadata = metadata
        self._instances = instances
        self._waits_for = waits_for

    async def progress(self, name: FunctionName, metadata: FunctionMetaData) -> Progress:
        """Return the progress of a record's version. Cancellation: safe."""
        found = await self._instances.deployed(name) if to_run(metadata) else {}
        return judge(metadata, found, self._waits_for(metadata))

    async def of_version(self, name: FunctionName, version: int) -> Json:
        """Return the progress of a deployed version.

        Raises:
            RequestRefused: 404, the function does not exist; 400, the version never existed.
        """
        metadata = self._metadata.get(str(name))
        if metadata is None or metadata.version < version:
            try:
                await (
                    self._metadata.log.catch_up()
                )  # another worker handled the deployment, which this worker has not read yet
            except MagnetarError as exc:
                raise RequestRefused(503, f"this worker cannot read changes made by others: {exc}") from exc
            metadata = self._metadata.get(str(name))
        if metadata is None:
            raise RequestRefused(404, f"Function {name.name} doesn't exist")
        if newest_version(metadata) != version:
            return self._past(metadata, version)
        found = await self.progress(name, metadata)
        return {
            "version": version, "state": found.state, "numInstances": found.num_instances,
            "numRunning": found.num_running, "error": found.error, "restoredVersion": None,
            "rollsBack": metadata.deployments.HasField("trial"),
        }  # fmt: skip

    def _past(self, metadata: FunctionMetaData, version: int) -> Json:
        one = earlier_version(metadata, version)
        if version > metadata.version:
            raise RequestRefused(
                400, f"version {version} does not exist: the newest version is {newest_version(metadata)}"
            )
        answer = {"version": version, "numInstances": 0, "numRunning": 0, "rollsBack": False}
        if one is None or not one.failure:
            return {**answer, "state": REPLACED, "error": "", "restoredVersion": None}
        return {**answer, "state": ROLLED_BACK, "error": one.failure, "restoredVersion": _restored(metadata, version)}


def _restored(metadata: FunctionMetaData, version: int) -> int:
    """Return the version that was restored when another version was rolled back."""
    deployments = [metadata.deployments.newest, *metadata.deployments.earlier]
    after = [one for one in deployments if one.version > version and one.isRestored]
    return int(after[-1].restoredVersion) if after else 0
