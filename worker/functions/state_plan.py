"""Planned changes of a function's whole state in its record: checking, requesting, completing and abandoning them.

There are two kinds: the state is kept with the version that is replaced, or restored from it. `state_changes` makes
them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import RequestRefused
from ...instance.identity import table_of
from ...wire.functions_pb2 import FunctionDetails, FunctionMetaData, StateChange
from .history import TRIAL_S, newest_version, restored
from .prerequisites import is_spark
from .state_tables import StateTables

KEEP_PARAMETER, WITH_PARAMETER = "keepState", "withState"


@dataclass(frozen=True, slots=True)
class StatePlan:
    """Adds requests to keep or restore a state to records, if possible.

    Attributes:
        tables: the state tables.
    """

    tables: StateTables

    async def check_keep(self, existing: FunctionMetaData) -> None:
        """Check that the state of a version can be kept when it is replaced.

        Raises:
            RequestRefused: 400, not possible for this function; 409, not now; 503, the state store is unavailable.
        """
        check_possible(existing, KEEP_PARAMETER)
        await self.tables.kept(table_of(existing))

    async def check_put_back(self, existing: FunctionMetaData, version: int) -> None:
        """Check that the state of a version can be restored.

        Raises:
            RequestRefused: as for `check_keep`, or 400 if no state was kept.
        """
        check_possible(existing, WITH_PARAMETER)
        kept = await self.tables.kept(table_of(existing))
        if version not in kept:
            others = ", ".join(map(str, kept)) or "none"
            raise RequestRefused(
                400, f"{WITH_PARAMETER}: no state of version {version} of {existing.functionDetails.name} is kept;"
                f" versions that have one: {others}. An update with {KEEP_PARAMETER} keeps that of the version which it"
                f" replaces. Leave {WITH_PARAMETER} out, and the state stays as it is",
            )  # fmt: skip

    def keep(self, existing: FunctionMetaData, metadata: FunctionMetaData) -> None:
        """Request, in the record that replaces a version, that its state is kept first."""
        metadata.stateChange.CopyFrom(StateChange(version=newest_version(existing), askedBy=metadata.version))

    def put_back(self, metadata: FunctionMetaData, version: int) -> None:
        """Request, in the record of a rollback, that a version's kept state is restored first."""
        metadata.stateChange.CopyFrom(StateChange(version=version, isRestore=True, askedBy=metadata.version))


def check_possible(metadata: FunctionMetaData, field: str) -> None:
    """Check that a state can be kept or restored: it must contain only the function's own data, and not be changing.

    Raises:
        RequestRefused: 400, it is a source, a sink or a Spark function; 409, another change is pending.
    """
    details = metadata.functionDetails
    if details.componentType in (FunctionDetails.SOURCE, FunctionDetails.SINK):
        raise RequestRefused(
            400, f"{field}: a source or sink has its positions in its state, which cannot go back; leave it out"
        )
    if is_spark(details):
        raise RequestRefused(
            400, f"{field}: a Spark function has the plans of its runs in its state, which cannot go back; leave it out"
        )
    if metadata.HasField("stateChange"):
        raise RequestRefused(409, f"{field}: {waits_for(metadata)}; try again when its instances have started")


def waits_for(metadata: FunctionMetaData, reason: str = "") -> str:
    """Return in one line what instances wait for according to their function's record; empty if nothing."""
    if not metadata.HasField("stateChange"):
        return ""
    what = "put back" if metadata.stateChange.isRestore else "kept"
    why = reason or "if that lasts, the leader's log says why"
    return f"the state of version {metadata.stateChange.version} is being {what} before an instance starts; {why}"


def made(existing: FunctionMetaData, now_ms: int) -> FunctionMetaData:
    """Return the record after a completed state change; a trial begins now."""
    metadata = _without_change(existing)
    if existing.stateChange.isRestore:
        metadata.stateEpoch = existing.stateChange.askedBy
    if metadata.deployments.HasField("trial"):
        metadata.deployments.trial.untilMs = now_ms + int(TRIAL_S * 1000)
    return metadata


def given_up(existing: FunctionMetaData, reason: str, now_ms: int) -> FunctionMetaData:
    """Return the record after a failed restore: the previous version is deployed again, with the reason.

    If another version was deployed meanwhile, that one starts instead.
    """
    is_newest = newest_version(existing) == existing.stateChange.askedBy
    if not is_newest or not existing.deployments.earlier:
        return _without_change(existing)
    metadata = restored(existing, existing.deployments.earlier[0].version, now_ms, reason)
    metadata.ClearField("stateChange")
    return metadata


def _without_change(existing: FunctionMetaData) -> FunctionMetaData:
    metadata = FunctionMetaData()
    metadata.CopyFrom(existing)
    metadata.version += 1
    metadata.ClearField("stateChange")
    return metadata
