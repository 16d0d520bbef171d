"""What records say of a change of a function's whole state: which is possible, asked for, made, given up.

Its two kinds: the state is kept for the version that is replaced, or put back from that. `state_changes` makes them.
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
    """Writes into records that a state is to be kept or put back, where that can be done.

    Attributes:
        tables: where the states are.
    """

    tables: StateTables

    async def check_keep(self, existing: FunctionMetaData) -> None:
        """Make sure that the state of a version can be kept when it is replaced.

        Raises:
            RequestRefused: not of such a function (400), not now (409), or the state store is not there (503).
        """
        check_possible(existing, KEEP_PARAMETER)
        await self.tables.kept(table_of(existing))

    async def check_put_back(self, existing: FunctionMetaData, version: int) -> None:
        """Make sure that the state of a version can be put back.

        Raises:
            RequestRefused: as `check_keep`, or none was kept (400).
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
        """Note in the record that replaces a version that its state is to be kept before."""
        metadata.stateChange.CopyFrom(StateChange(version=newest_version(existing), askedBy=metadata.version))

    def put_back(self, metadata: FunctionMetaData, version: int) -> None:
        """Note in the record of a rollback that the state which was kept of a version is to be put back before."""
        metadata.stateChange.CopyFrom(StateChange(version=version, isRestore=True, askedBy=metadata.version))


def check_possible(metadata: FunctionMetaData, field: str) -> None:
    """Refuse to keep or put back the state of what keeps more there than its own, or is about to be changed.

    Raises:
        RequestRefused: 400, it is a source, a sink or runs by Spark; 409, another change is to be made first.
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
    """Return in a line what instances wait for, by their function's record; empty if for nothing."""
    if not metadata.HasField("stateChange"):
        return ""
    what = "put back" if metadata.stateChange.isRestore else "kept"
    why = reason or "if that lasts, the leader's log says why"
    return f"the state of version {metadata.stateChange.version} is being {what} before an instance starts; {why}"


def made(existing: FunctionMetaData, now_ms: int) -> FunctionMetaData:
    """Return the record after a change of the state; a trial begins now."""
    metadata = _without_change(existing)
    if existing.stateChange.isRestore:
        metadata.stateEpoch = existing.stateChange.askedBy
    if metadata.deployments.HasField("trial"):
        metadata.deployments.trial.untilMs = now_ms + int(TRIAL_S * 1000)
    return metadata


def given_up(existing: FunctionMetaData, reason: str, now_ms: int) -> FunctionMetaData:
    """Return the record after a state could not be put back: what ran before is deployed again, and says why.

    Unless something else was deployed meanwhile, which starts then.
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
