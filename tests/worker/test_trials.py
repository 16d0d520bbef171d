"""A version on trial is kept when it comes up and rolled back when it does not, whoever leads; without a broker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from magnetar.errors import FunctionExists, OutOfDate, RequestRefused
from magnetar.metadata.functions import FunctionMetadataManager, FunctionRequest, FunctionTable
from magnetar.web.deployments import FAILED, RUNNING, STARTING, STOPPED
from magnetar.wire.functions_pb2 import STOPPED as IS_STOPPED
from magnetar.wire.functions_pb2 import FunctionDetails, FunctionMetaData, PackageLocationMetaData
from magnetar.worker.functions.deployments import FAILED_RESTARTS, Progress, judge
from magnetar.worker.functions.history import (
    EARLIER_BYTES_MAX,
    EARLIER_VERSIONS_MAX,
    TRIAL_S,
    begin,
    fallback_of,
    listed,
    newest_version,
    package_paths,
    replace_version,
    restored,
)
from magnetar.worker.functions.service import FunctionName
from magnetar.worker.functions.trials import STEADY_S, Trials

from tests.metadata.memory_log import MemoryLog

NAME = "t/n/f"


def created(parallelism: int = 1) -> FunctionMetaData:
    metadata = FunctionMetaData(
        functionDetails=FunctionDetails(tenant="t", namespace="n", name="f", className="m.v0", parallelism=parallelism),
        packageLocation=PackageLocationMetaData(packagePath="package-0"),
        createTime=7,
        functionUuid="u",
    )
    begin(metadata)
    return metadata


def updated(existing: FunctionMetaData, *, rolls_back: bool = True, state: str = RUNNING) -> FunctionMetaData:
    metadata = FunctionMetaData()
    metadata.CopyFrom(existing)
    metadata.version += 1
    metadata.functionDetails.className = f"m.v{metadata.version}"
    metadata.packageLocation.packagePath = f"package-{metadata.version}"
    replace_version(existing, metadata, 1000, fallback_of(existing, state) if rolls_back else None)
    return metadata


@dataclass
class Leader:
    """One that looks at what the test says."""

    storage: MemoryLog
    found: Progress = field(default_factory=lambda: Progress(STARTING, 1, 0))
    now_s: float = 0.0
    may_go: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.metadata = FunctionMetadataManager(self.storage, lambda change: self.trials.notice(change))
        self.trials = Trials(self.metadata, self._look, lambda: self.now_s, lambda: int(self.now_s * 1000) + 1000)
        self.may_go.set()
        self.looking = asyncio.Event()

    async def _look(self, name: FunctionName, metadata: FunctionMetaData) -> Progress:
        assert str(name) == NAME
        self.looking.set()
        await self.may_go.wait()
        return self.found

    async def submit(self, metadata: FunctionMetaData, *, is_deletion: bool = False) -> None:
        number = str(len(self.storage.records))
        await self.metadata.submit(FunctionRequest(metadata, number, is_deletion))

    @property
    def record(self) -> FunctionMetaData:
        record = self.metadata.get(NAME)
        assert record is not None
        return record


async def a_leader(storage: MemoryLog | None = None) -> Leader:
    leader = Leader(storage or MemoryLog())
    leader.storage._applied = 0  # this one has read nothing yet
    await leader.storage.lead(leader.metadata.log)
    return leader


async def on_trial() -> Leader:
    leader = await a_leader()
    await leader.submit(created())
    await leader.submit(updated(leader.record))
    assert leader.record.deployments.trial.fallbackVersion == 0
    return leader


async def test_a_version_that_runs_for_a_while_is_kept_without_a_change_for_its_instances() -> None:
    leader = await on_trial()
    leader.found = Progress(RUNNING, 1, 1, restarts=(0,))
    await leader.trials.look()
    leader.now_s += STEADY_S / 2
    await leader.trials.look()
    assert leader.record.deployments.HasField("trial"), "it has run for a moment only"
    leader.now_s += STEADY_S
    await leader.trials.look()
    assert (leader.record.version, leader.record.deployments.HasField("trial")) == (1, False)
    leader.found = Progress(FAILED, 1, 0, "later")
    await leader.trials.look()
    assert leader.record.version == 1, "what came up is not rolled back"


async def test_a_restart_in_between_begins_the_while_anew() -> None:
    leader = await on_trial()
    for restarts in range(4):
        leader.found = Progress(RUNNING, 1, 1, restarts=(restarts,))
        leader.now_s += STEADY_S * 2
        await leader.trials.look()
    assert leader.record.deployments.HasField("trial")


async def test_a_version_that_fails_is_rolled_back_with_its_reason() -> None:
    leader = await on_trial()
    leader.found = Progress(FAILED, 1, 0, "Traceback …\nValueError: no")
    await leader.trials.look()
    record = leader.record
    assert (record.version, record.functionDetails.className, record.packageLocation.packagePath) == (
        2, "m.v0", "package-0",
    )  # fmt: skip
    assert [(one["version"], one["state"], one["restoredVersion"]) for one in listed(record)] == [
        (2, "deployed", 0), (1, "rolledBack", None), (0, "replaced", None),
    ]  # fmt: skip
    assert listed(record)[1]["failure"] == "Traceback …\nValueError: no"


async def test_a_version_that_never_starts_is_rolled_back_in_the_end() -> None:
    leader = await on_trial()
    await leader.trials.look()
    assert leader.record.version == 1
    leader.now_s = TRIAL_S + 1
    await leader.trials.look()
    assert listed(leader.record)[1]["failure"] == "only 0 of 1 instances were running in time"


@pytest.mark.parametrize("by", ["update", "stop", "deletion"])
async def test_what_somebody_changes_while_a_rollback_is_decided_stands(by: str) -> None:
    leader = await on_trial()
    leader.found = Progress(FAILED, 1, 0, "no")
    leader.may_go.clear()
    looking = asyncio.create_task(leader.trials.look())
    await leader.looking.wait()
    if by == "update":
        await leader.submit(updated(leader.record, rolls_back=False))
    else:
        change = FunctionMetaData()
        change.CopyFrom(leader.record)
        change.version += 1
        change.instanceStates[0] = IS_STOPPED
        await leader.submit(change, is_deletion=by == "deletion")
    before = len(leader.storage.records)
    leader.may_go.set()
    await looking
    assert len(leader.storage.records) == before
    if by != "deletion":
        assert leader.record.functionDetails.className == ("m.v2" if by == "update" else "m.v1")
    leader.found = Progress(STOPPED, 0, 0)
    await leader.trials.look()
    left = leader.metadata.get(NAME)
    assert left is None or not left.deployments.HasField("trial"), "a stop ends a trial"


async def test_the_next_leader_finds_the_trial_and_decides_it_once() -> None:
    leader = await on_trial()
    leader.found = Progress(FAILED, 1, 0, "no")
    leader.storage.fails_after_writing = True  # written, and the leader never hears of it
    await leader.trials.look()
    second = await a_leader(leader.storage)
    second.found = leader.found
    await second.trials.look()
    assert (second.record.version, second.record.functionDetails.className) == (2, "m.v0")
    third = await a_leader(MemoryLog())
    third.storage.records = leader.storage.records[:2]  # killed before it wrote
    await third.metadata.log.catch_up()
    third.found = leader.found
    await third.trials.look()
    assert (third.record.version, third.record.functionDetails.className) == (2, "m.v0")


async def test_a_second_update_falls_back_to_what_ran_last() -> None:
    leader = await on_trial()
    await leader.submit(updated(leader.record, state=STARTING))
    assert leader.record.deployments.trial.fallbackVersion == 0
    leader.found = Progress(FAILED, 1, 0, "no")
    await leader.trials.look()
    assert leader.record.functionDetails.className == "m.v0"


def test_only_a_version_that_ran_is_fallen_back_to() -> None:
    assert not updated(created(), state=FAILED).deployments.HasField("trial")
    assert updated(created(), state=STARTING).deployments.trial.fallbackVersion == 0
    on_trial = updated(created())
    assert updated(on_trial, state=FAILED).deployments.trial.fallbackVersion == 0
    assert updated(on_trial, state=RUNNING).deployments.trial.fallbackVersion == 1


def test_the_end_of_a_trial_changes_a_table_once_and_an_older_record_never() -> None:
    table = FunctionTable()
    first, second = created(), updated(created())
    third = FunctionMetaData()
    third.CopyFrom(second)
    third.deployments.ClearField("trial")
    records = [(NAME, one.SerializeToString(), {"requestId": str(i)}) for i, one in enumerate((first, second, third))]
    assert [table.apply(*one) is not None for one in records] == [True, True, True]
    assert [table.apply(*one) is not None for one in records] == [False, False, False]
    with pytest.raises(OutOfDate):
        table.decide(FunctionRequest(second, "other"))
    with pytest.raises(FunctionExists):
        table.decide(FunctionRequest(first, "another"))


def test_a_record_of_an_earlier_release_has_its_own_version_as_the_only_one() -> None:
    old = FunctionMetaData(functionDetails=created().functionDetails, version=5)
    assert [one["version"] for one in listed(old)] == [5]
    new = updated(old)
    assert [one["version"] for one in listed(new)] == [6, 5]
    assert new.deployments.trial.fallbackVersion == 5


def test_versions_are_kept_up_to_a_number_and_a_size_with_their_packages() -> None:
    record = created()
    for _ in range(EARLIER_VERSIONS_MAX + 5):
        record = updated(record)
    assert [one["version"] for one in listed(record)] == list(range(15, 4, -1))
    assert set(package_paths(record)) == {f"package-{version}" for version in range(5, 16)}
    record.functionDetails.userConfig = "x" * (EARLIER_BYTES_MAX // 2)
    for _ in range(5):
        record = updated(record)
    assert len(record.deployments.earlier) <= 3
    assert record.deployments.trial.fallbackVersion in [one.version for one in record.deployments.earlier]


def test_only_versions_that_are_kept_are_restored() -> None:
    record = updated(created())
    with pytest.raises(RequestRefused, match="version 1 of f is already deployed"):
        restored(record, 1, 5)
    with pytest.raises(RequestRefused, match="version 9 of f was not retained: earlier versions available: 0"):
        restored(record, 9, 5)
    assert newest_version(restored(record, 0, 5)) == 2


def test_what_is_told_of_another_version_or_another_function_counts_for_nothing() -> None:
    record = updated(created(parallelism=2))

    def told(**other: object) -> dict[str, object]:
        return {"functionUuid": "u", "version": 1, "running": True, "error": "", "numRestarts": 0, **other}

    assert judge(record, {0: told(), 1: told()}).state == RUNNING
    assert judge(record, {0: told(), 1: told(version=0)}).state == STARTING
    assert judge(record, {0: told(), 1: told(functionUuid="before")}).state == STARTING
    assert judge(record, {0: told()}).state == STARTING
    old_failure = told(version=0, running=False, error="old", numRestarts=FAILED_RESTARTS)
    assert judge(record, {0: told(), 1: old_failure}) == Progress(STARTING, 2, 1, "", (0, 0))
    failing = told(running=False, error="no", numRestarts=FAILED_RESTARTS)
    assert judge(record, {0: told(), 1: failing}) == Progress(FAILED, 2, 1, "no", (0, FAILED_RESTARTS))
    assert judge(record, {0: told(), 1: {"error": "worker w does not answer"}}).error == "worker w does not answer"
    record.instanceStates[0] = record.instanceStates[1] = IS_STOPPED
    assert judge(record, {}).state == STOPPED
