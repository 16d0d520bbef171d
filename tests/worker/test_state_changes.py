"""States are kept and put back before any instance starts, whoever leads; without a broker, on a store of tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from magnetar.errors import RequestRefused
from magnetar.instance.identity import table_of
from magnetar.metadata.functions import FunctionMetadataManager, FunctionRequest
from magnetar.scheduler.manager import Workforce, plan
from magnetar.state.client import Increment
from magnetar.state.codec import encode_changes
from magnetar.state.names import kept_name, split_epoch
from magnetar.state.store import TableStore
from magnetar.state.transaction import Transaction
from magnetar.web.deployments import RUNNING, STARTING
from magnetar.wire import state_pb2 as pb
from magnetar.wire.functions_pb2 import STOPPED, Assignment, FunctionDetails, FunctionMetaData
from magnetar.worker.functions.deployments import Progress, judge
from magnetar.worker.functions.history import TRIAL_S, listed, restored
from magnetar.worker.functions.service import FunctionName
from magnetar.worker.functions.state_changes import StateChanges
from magnetar.worker.functions.state_plan import StatePlan, check_possible, waits_for
from magnetar.worker.functions.state_tables import StateTables
from magnetar.worker.functions.trials import Trials

from tests.metadata.memory_log import MemoryLog

from .test_trials import NAME, created, updated


class Tables(StateTables):
    """A store in this process, which may be away."""

    def __init__(self, store: TableStore) -> None:
        super().__init__("bk://127.0.0.1:1")
        self.store = store
        self.failure = ""
        self.lost_answers = 0

    def _answer(self) -> None:
        if self.lost_answers:
            self.lost_answers -= 1
            raise RequestRefused(503, "the answer was lost")

    def _check(self) -> None:
        if self.failure:
            raise RequestRefused(503, self.failure)

    async def kept(self, table: str) -> list[int]:
        self._check()
        return self.store.kept(split_epoch(table)[0])

    async def keep(self, table: str, version: int) -> None:
        self._check()
        self.store.keep(split_epoch(table)[0], version)
        self._answer()

    async def restore(self, table: str, version: int, epoch: int) -> bool:
        self._check()
        is_kept = self.store.restore(split_epoch(table)[0], version, epoch)
        self._answer()
        return is_kept


@dataclass
class Leader:
    """One that finds running what the test says."""

    storage: MemoryLog
    tables: Tables
    runs: str = ""
    asked: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.metadata = FunctionMetadataManager(self.storage, lambda change: self.changes.notice(change))
        self.changes = StateChanges(self.metadata, self._what_runs, self.tables, lambda: 5000)
        self.plan = StatePlan(self.tables)
        self.sequence = 0

    async def _what_runs(self, name: FunctionName, metadata: FunctionMetaData) -> str:
        assert str(name) == NAME
        self.asked.append(metadata.version)
        return self.runs

    async def submit(self, metadata: FunctionMetaData) -> None:
        await self.metadata.submit(FunctionRequest(metadata, str(len(self.storage.records))))

    async def update(self, *, keeps_state: bool = True) -> None:
        before, after = self.record, updated(self.record)
        if keeps_state:
            await self.plan.check_keep(before)
            self.plan.keep(before, after)
        await self.submit(after)

    async def roll_back(self, version: int) -> None:
        after = restored(self.record, version, 1000)
        await self.plan.check_put_back(self.record, version)
        self.plan.put_back(after, version)
        await self.submit(after)

    def count(self, amount: int) -> None:
        self.sequence += 1
        table, epoch = split_epoch(table_of(self.record))
        changes = encode_changes([Increment(b"n", amount)])
        self.tables.store.apply(
            pb.ApplyRequest(table=table, writer=b"w" * 16, sequence=self.sequence, changes=changes, epoch=epoch)
        )

    @property
    def counted(self) -> int | None:
        (value,) = self.tables.store.read(split_epoch(table_of(self.record))[0], [b"n"])
        return None if value is None else value.number

    @property
    def record(self) -> FunctionMetaData:
        record = self.metadata.get(NAME)
        assert record is not None
        return record

    @property
    def is_pending(self) -> bool:
        return self.record.HasField("stateChange")

    async def next(self) -> Leader:
        """The leader after this one."""
        following = Leader(self.storage, self.tables)
        following.sequence = self.sequence
        self.storage._applied = 0  # that one has read nothing yet
        await self.storage.lead(following.metadata.log)
        return following


@pytest.fixture
async def leader(tmp_path: Path) -> Leader:
    leader = Leader(MemoryLog(), Tables(TableStore.open(tmp_path)))
    await leader.storage.lead(leader.metadata.log)
    await leader.submit(created())
    leader.count(5)
    return leader


@pytest.fixture(autouse=True)
def _closing(leader: Leader) -> object:
    yield
    leader.tables.store.close()


async def test_nothing_runs_until_the_state_is_kept(leader: Leader) -> None:
    await leader.update()
    assert leader.is_pending
    (record,) = plan([leader.record], Workforce(frozenset({"w"})), {})
    assigned = Assignment.FromString(record.value).instance.functionMetaData
    assert assigned.instanceStates[0] == STOPPED
    assert not assigned.HasField("stateChange")
    leader.runs = "t/n/f:0 still holds its lock"
    await leader.changes.look()
    assert (leader.is_pending, leader.tables.store.kept(split_epoch(table_of(leader.record))[0])) == (True, [])
    assert leader.changes.waits_for(leader.record) == (
        "the state of version 0 is being saved before instances start; t/n/f:0 still holds its lock"
    )
    leader.runs = ""
    await leader.changes.look()
    assert (leader.is_pending, await leader.tables.kept(table_of(leader.record))) == (False, [0])
    (record,) = plan([leader.record], Workforce(frozenset({"w"})), {})
    assert not Assignment.FromString(record.value).instance.functionMetaData.instanceStates
    assert [one["version"] for one in listed(leader.record)] == [1, 0], "it is the version that was asked for"


async def test_a_state_comes_back_once_whatever_was_lost(leader: Leader) -> None:
    await leader.update()
    leader.tables.lost_answers = 1
    await leader.changes.look()
    await leader.changes.look()
    leader.count(10)
    await leader.roll_back(0)
    asked_by = leader.record.version
    leader.tables.lost_answers = 1
    await leader.changes.look()
    assert leader.is_pending, "nobody knows yet"
    following = await leader.next()
    assert following.is_pending
    await following.changes.look()
    assert (following.is_pending, following.counted, following.record.stateEpoch) == (False, 5, asked_by)
    following.count(1)
    # The leader before was frozen in the middle of it, and goes on now.
    assert await leader.tables.restore(table_of(following.record), 0, asked_by)
    await leader.tables.keep(table_of(following.record), 0)
    assert following.counted == 6


async def test_a_state_store_that_is_away_is_waited_for_and_named(leader: Leader) -> None:
    await leader.update()
    leader.tables.failure = "the state store at bk://h:1 cannot be reached"
    await leader.changes.look()
    found = judge(leader.record, {}, leader.changes.waits_for(leader.record))
    assert (found.state, found.num_running) == (STARTING, 0)
    assert found.error.endswith("before instances start; the state store at bk://h:1 cannot be reached")
    assert waits_for(leader.record).endswith("if this takes long, check the leader's log")
    leader.tables.failure = ""
    await leader.changes.look()
    assert not leader.is_pending


async def test_nothing_is_asked_for_while_the_state_store_is_away(leader: Leader) -> None:
    leader.tables.failure = "the state store at bk://h:1 cannot be reached"
    with pytest.raises(RequestRefused, match="cannot be reached"):
        await leader.update()
    with pytest.raises(RequestRefused, match="cannot be reached"):
        await leader.plan.check_put_back(leader.record, 0)
    assert leader.record.version == 0


async def test_what_is_deployed_meanwhile_waits_too_and_asks_for_no_other_state(leader: Leader) -> None:
    await leader.update()
    leader.runs = "something"
    await leader.changes.look()
    await leader.update(keeps_state=False)
    assert leader.is_pending
    with pytest.raises(RequestRefused, match="the state of version 0 is being saved before") as refused:
        await leader.update()
    assert refused.value.status == 409
    leader.runs = ""
    await leader.changes.look()
    assert (leader.is_pending, leader.record.functionDetails.className) == (False, "m.v2")
    assert await leader.tables.kept(table_of(leader.record)) == [0]


async def test_what_runs_is_asked_of_the_newest_record(leader: Leader) -> None:
    await leader.update()
    leader.runs = "something"
    await leader.changes.look()
    await leader.update(keeps_state=False)
    await leader.changes.look()
    assert leader.asked == [1, 2]


async def test_a_state_that_is_lost_has_what_ran_before_deployed_again(leader: Leader) -> None:
    await leader.update()
    await leader.changes.look()
    leader.count(10)
    await leader.roll_back(0)
    lost = kept_name(split_epoch(table_of(leader.record))[0], 0)  # as from a backup of before

    def lose(transaction: Transaction) -> int:
        transaction.drop_table(lost)
        return 0

    leader.tables.store._submit(lose, 1)
    await leader.changes.look()
    assert (leader.is_pending, leader.counted, leader.record.stateEpoch) == (False, 15, 0)
    assert leader.record.functionDetails.className == "m.v1"
    rolled_back = listed(leader.record)[1]
    assert rolled_back["state"] == "rolledBack"
    assert "the state store no longer has the state of version 0" in rolled_back["failure"]


async def test_a_state_that_is_lost_ends_no_later_deployment(leader: Leader) -> None:
    await leader.update()
    await leader.changes.look()
    await leader.roll_back(0)
    await leader.update(keeps_state=False)
    deployed = leader.record.functionDetails.className
    leader.tables.store.drop(split_epoch(table_of(leader.record))[0])
    await leader.changes.look()
    assert (leader.is_pending, leader.record.functionDetails.className) == (False, deployed)


async def test_a_trial_begins_when_instances_may(leader: Leader) -> None:
    looked: list[int] = []

    async def progress(_: FunctionName, metadata: FunctionMetaData) -> Progress:
        looked.append(metadata.version)
        return Progress(RUNNING, 1, 1)

    trials = Trials(leader.metadata, progress)
    await leader.update()
    trials._on_trial.add(NAME)
    await trials.look()
    assert not looked
    await leader.changes.look()
    assert leader.record.deployments.trial.untilMs == 5000 + int(TRIAL_S * 1000)
    await trials.look()
    assert looked == [leader.record.version]


async def test_versions_without_a_state_are_named(leader: Leader) -> None:
    for _ in range(2):
        await leader.update()
        await leader.changes.look()
    await leader.update(keeps_state=False)
    kept = await leader.tables.kept(table_of(leader.record))
    with pytest.raises(RequestRefused) as refused:
        await leader.plan.check_put_back(leader.record, 7)
    assert str(refused.value).startswith(
        f"withState: no saved state of version 7 of f; versions with a saved state: {kept[0]}, {kept[1]}. Updates with"
    )


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        (
            FunctionDetails(componentType=FunctionDetails.SOURCE),
            "is not supported for sources and sinks, whose state contains their positions",
        ),
        (
            FunctionDetails(componentType=FunctionDetails.SINK),
            "is not supported for sources and sinks, whose state contains their positions",
        ),
        (
            FunctionDetails(customRuntimeOptions='{"runtimeEnv": "spark"}'),
            "is not supported for Spark functions, whose state contains the plans of their runs",
        ),
    ],
    ids=["source", "sink", "spark"],
)
def test_what_has_more_in_its_state_is_refused(details: FunctionDetails, reason: str) -> None:
    with pytest.raises(RequestRefused, match=f"keepState {reason}") as refused:
        check_possible(FunctionMetaData(functionDetails=details), "keepState")
    assert refused.value.status == 400
