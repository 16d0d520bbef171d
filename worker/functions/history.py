"""Deployed versions of a function: operations on records, without side effects.

Every change of a function, including start and stop, increments its version. Versions that deployed something (through
creation, update or rollback) are listed in the record itself, so that a single write changes both. The newest version
is the record itself. For each earlier version, the list contains its config and the location of its package, which is
retained as long as the list item.

A version on trial is rolled back by the leader if it fails to start. The trial is stored in the record, so that the
next leader finds it after a crash. Later deployments replace it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...errors import RequestRefused
from ...web.deployments import FAILED, RUNNING
from ...wire.functions_pb2 import STOPPED, Deployment, Deployments, FunctionMetaData, PackageLocationMetaData, Trial

EARLIER_VERSIONS_MAX = 10
"""Maximum number of earlier versions that are retained with their packages."""
EARLIER_BYTES_MAX = 256 * 1024
"""Maximum total size of earlier versions in the record, which every worker reads; configs can be large."""
TRIAL_S = 600.0
"""Time limit in seconds for a version to start unless it fails; imports, models and queues take time."""
FAILURE_CHARACTERS_MAX = 8192

Json = dict[str, Any]


def begin(metadata: FunctionMetaData) -> None:
    """Record the creation of a function in its record."""
    metadata.deployments.CopyFrom(
        Deployments(newest=Deployment(version=metadata.version, timeMs=metadata.createTime)),
    )


def replace_version(
    existing: FunctionMetaData, metadata: FunctionMetaData, now_ms: int, fallback: int | None = None
) -> None:
    """Record an update in the new record.

    Args:
        existing: the previous record.
        metadata: the new record, with a new version number.
        now_ms: the current time.
        fallback: version to restore if the new version fails to start, which puts the new version on trial if any
            instance should run. None for no trial.
    """
    history = Deployments(newest=Deployment(version=metadata.version, timeMs=now_ms))
    history.earlier.extend(_bounded([_as_earlier(existing), *existing.deployments.earlier]))
    is_listed = any(one.version == fallback for one in history.earlier)
    if fallback is not None and is_listed and to_run(metadata):
        history.trial.CopyFrom(Trial(fallbackVersion=fallback, untilMs=now_ms + int(TRIAL_S * 1000)))
    metadata.deployments.CopyFrom(history)


def fallback_of(existing: FunctionMetaData, state: str) -> int | None:
    """Return the fallback version of an update, or None if no version is known to have run.

    Args:
        existing: the record before the update.
        state: progress of the existing version, as in `web.deployments`.
    """
    if state != RUNNING and existing.deployments.HasField("trial"):
        return existing.deployments.trial.fallbackVersion
    return None if state == FAILED else newest_version(existing)


def restored(existing: FunctionMetaData, version: int, now_ms: int, failure: str = "") -> FunctionMetaData:
    """Return the record that redeploys an earlier version as a new version.

    Args:
        existing: the current record.
        version: one of the versions returned by `listed`.
        now_ms: the current time.
        failure: reason for an automatic rollback; empty if a client requested the rollback.

    Raises:
        RequestRefused: 400, the version is the newest or was not retained.
    """
    name = existing.functionDetails.name
    if version == newest_version(existing):
        raise RequestRefused(400, f"version {version} of {name} is already deployed: nothing to roll back")
    found = next((one for one in existing.deployments.earlier if one.version == version), None)
    if found is None:
        kept = ", ".join(str(one.version) for one in existing.deployments.earlier) or "none"
        raise RequestRefused(400, f"version {version} of {name} was not retained: earlier versions available: {kept}")
    metadata = FunctionMetaData()
    metadata.CopyFrom(existing)
    metadata.version += 1
    metadata.functionDetails.CopyFrom(found.functionDetails)
    metadata.packageLocation.CopyFrom(found.packageLocation)
    metadata.ClearField("transformFunctionPackageLocation")
    if found.HasField("transformFunctionPackageLocation"):
        metadata.transformFunctionPackageLocation.CopyFrom(found.transformFunctionPackageLocation)
    metadata.ClearField("functionAuthSpec")  # code of one role never runs as another
    if found.HasField("functionAuthSpec"):
        metadata.functionAuthSpec.CopyFrom(found.functionAuthSpec)
    for number in [one for one in metadata.instanceStates if one >= metadata.functionDetails.parallelism]:
        del metadata.instanceStates[number]
    newest = Deployment(version=metadata.version, timeMs=now_ms, restoredVersion=version, isRestored=True)
    history = Deployments(newest=newest)
    last = _as_earlier(existing)
    last.failure = failure[:FAILURE_CHARACTERS_MAX]
    history.earlier.extend(_bounded([last, *existing.deployments.earlier]))
    metadata.deployments.CopyFrom(history)
    return metadata


def confirmed(existing: FunctionMetaData) -> FunctionMetaData:
    """Return the record, with the same version number, that ends the trial of a version that has started."""
    metadata = FunctionMetaData()
    metadata.CopyFrom(existing)
    metadata.deployments.ClearField("trial")
    return metadata


def newest_version(metadata: FunctionMetaData) -> int:
    """Return the deployed version; in records of earlier releases, which lack it, this is the record's own version."""
    deployments = metadata.deployments
    return deployments.newest.version if deployments.HasField("newest") else metadata.version


def earlier_version(metadata: FunctionMetaData, version: int) -> Deployment | None:
    """Return an earlier version, or None if it was not retained."""
    return next((one for one in metadata.deployments.earlier if one.version == version), None)


def to_run(metadata: FunctionMetaData) -> list[int]:
    """Return the numbers of the instances that should run."""
    numbers = range(metadata.functionDetails.parallelism)
    return [number for number in numbers if metadata.instanceStates.get(number) != STOPPED]


def package_paths(metadata: FunctionMetaData) -> Iterator[str]:
    """Yield the paths of all packages referenced by a record, including those of earlier versions."""
    yield code_location(metadata).packagePath
    for one in metadata.deployments.earlier:
        yield code_location(one).packagePath


def code_location(record: FunctionMetaData | Deployment) -> PackageLocationMetaData:
    """Return the location of a version's code, which for an installed connector is its transform function."""
    has_transform = record.HasField("transformFunctionPackageLocation")
    return record.transformFunctionPackageLocation if has_transform else record.packageLocation


def listed(metadata: FunctionMetaData) -> list[Json]:
    """Return all retained versions as JSON, newest first."""
    deployments = metadata.deployments
    newest = deployments.newest if deployments.HasField("newest") else Deployment(version=metadata.version)
    state = "onTrial" if deployments.HasField("trial") else "deployed"
    return [
        _listed(newest, metadata, state),
        *(_listed(one, one, "rolledBack" if one.failure else "replaced") for one in deployments.earlier),
    ]


def _listed(one: Deployment, record: FunctionMetaData | Deployment, state: str) -> Json:
    return {
        "version": one.version,
        "state": state,
        "timeMs": one.timeMs or None,
        "className": record.functionDetails.className,
        "parallelism": record.functionDetails.parallelism,
        "package": code_location(record).packagePath,
        "packageName": code_location(record).originalFileName,
        "restoredVersion": one.restoredVersion if one.isRestored else None,
        "failure": one.failure or None,
    }


def _as_earlier(existing: FunctionMetaData) -> Deployment:
    newest = existing.deployments.newest
    one = Deployment(version=newest_version(existing), timeMs=newest.timeMs, restoredVersion=newest.restoredVersion)
    one.isRestored = newest.isRestored
    one.functionDetails.CopyFrom(existing.functionDetails)
    one.packageLocation.CopyFrom(existing.packageLocation)
    if existing.HasField("transformFunctionPackageLocation"):
        one.transformFunctionPackageLocation.CopyFrom(existing.transformFunctionPackageLocation)
    if existing.HasField("functionAuthSpec"):
        one.functionAuthSpec.CopyFrom(existing.functionAuthSpec)
    return one


def _bounded(found: list[Deployment]) -> list[Deployment]:
    """Return as many of the versions as may be retained, always including the last one."""
    kept, size = found[:1], found[0].ByteSize()
    for one in found[1:EARLIER_VERSIONS_MAX]:
        size += one.ByteSize()
        if size > EARLIER_BYTES_MAX:
            break
        kept.append(one)
    return kept
