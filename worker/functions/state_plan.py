"""Changes of a function's entire state in its record: checks, requests, completes and abandons them.

There are two kinds: saving the state with the replaced version, and restoring it. `state_changes` performs them.
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
    """Adds requests to save or restore a state to records, if possible.

    Attributes:
        tables: access to state tables.
    """

    tables: StateTables

    async def check_keep(self, existing: FunctionMetaData) -> None:
        """Check that the state of a version can be saved when the version is replaced.

        Raises:
            RequestRefused: 400, not supported for this function; 409, another change is pending; 503, the state store
                is unavailable.
        """
        check_possible(existing, KEEP_PARAMETER)
        await self.tables.kept(table_of(existing))

    async def check_put_back(self, existing: FunctionMetaData, version: int) -> None:
        """Check that the state of a version can be restored.

        Raises:
            RequestRefused: same as `check_keep`, or 400 if no state was saved.
        """
        check_possible(existing, WITH_PARAMETER)
        kept = await self.tables.kept(table_of(existing))
        if version not in kept:
            others = ", ".join(map(str, kept)) or "none"
            raise RequestRefused(
                400,
                    f"{WITH_PARAMETER}: no saved state of version {version} of {existing.functionDetails.name};"
                    f" versions with a saved state: {others}. Updates with {KEEP_PARAMETER} save the state of the"
                    f" version that they replace. Omit {WITH_PARAMETER} to leave the state unchanged"
                ,
            )  # fmt: skip

    def keep(self, existing: FunctionMetaData, metadata: FunctionMetaData) -> None:
        """Add a request to save the state of the replaced version to the new record."""
        metadata.stateChange.CopyFrom(StateChange(version=newest_version(existing), askedBy=metadata.version))

    def put_back(self, metadata: FunctionMetaData, version: int) -> None:
        """Add a request to restore a version's saved state to the record of a rollback."""
        metadata.stateChange.CopyFrom(StateChange(version=version, isRestore=True, askedBy=metadata.version))


def check_possible(metadata: FunctionMetaData, field: str) -> None:
    """Check that a state can be saved or restored: it must contain only the function's data, without pending changes.

    Raises:
        RequestRefused: 400, the function is a source, a sink or a Spark function; 409, another change is pending.
    """
    details = metadata.functionDetails
    if details.componentType in (FunctionDetails.SOURCE, FunctionDetails.SINK):
        raise RequestRefused(
            400, f"{field} is not supported for sources and sinks, whose state contains their positions: omit it"
        )
    if is_spark(details):
        raise RequestRefused(
            400, f"{field} is not supported for Spark functions, whose state contains the plans of their runs: omit it"
        )
    if metadata.HasField("stateChange"):
        raise RequestRefused(409, f"{field}: {waits_for(metadata)}; retry once its instances have started")


def waits_for(metadata: FunctionMetaData, reason: str = "") -> str:
    """Return a one-line description of the state change that a function's instances wait for, or an empty string."""
    if not metadata.HasField("stateChange"):
        return ""
    what = "restored" if metadata.stateChange.isRestore else "saved"
    why = reason or "if this takes long, check the leader's log"
    return f"the state of version {metadata.stateChange.version} is being {what} before instances start; {why}"


def made(existing: FunctionMetaData, now_ms: int) -> FunctionMetaData:
    """Return the record after a completed state change; any trial starts now."""
    metadata = _without_change(existing)
    if existing.stateChange.isRestore:
        metadata.stateEpoch = existing.stateChange.askedBy
    if metadata.deployments.HasField("trial"):
        metadata.deployments.trial.untilMs = now_ms + int(TRIAL_S * 1000)
    return metadata


def given_up(existing: FunctionMetaData, reason: str, now_ms: int) -> FunctionMetaData:
    """Return the record after a failed restore, which redeploys the previous version with the reason.

    If another version was deployed meanwhile, that version starts instead.
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
