"""Plans of Spark functions: how they are made, kept, and taken over; without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import MessageTooLarge, ProtocolError, StateStoreUnavailable
from magnetar.spark.jobs.plans import KEY, Plan, PlanStore, Record, RunFenced, Task, decode, encode, make_tasks
from magnetar.spark.source.ranges import Span, TopicRange
from magnetar.state.client import TableClient
from magnetar.state.server import TableServer
from magnetar.wire.position import Position

TABLE = "public/default/f"


@st.composite
def backlogs(draw: st.DrawFn) -> list[TopicRange]:
    """Ranges of whole ledgers but the first and the last, of up to four topics."""
    wholes = []
    for topic in range(draw(st.integers(0, 4))):
        ledgers = draw(st.lists(st.integers(0, 400), min_size=1, max_size=6, unique=True).map(sorted))
        spans = []
        for ledger in ledgers:
            first = draw(st.integers(0, 50))
            spans.append(Span(ledger, first, first + draw(st.integers(0, 3000))))
        wholes.append(TopicRange(f"persistent://public/default/t-partition-{topic}", tuple(spans)))
    return wholes


def entries_of(spans: tuple[Span, ...]) -> list[Position]:
    return [Position(ledger, entry) for ledger, first, last in spans for entry in range(first, last + 1)]


@given(backlogs(), st.integers(1, 16), st.none() | st.integers(1, 50), st.booleans())
def test_every_entry_is_in_one_task_and_slots_go_up(
    wholes: list[TopicRange], cores: int, min_tasks: int | None, is_ordered: bool
) -> None:
    tasks = make_tasks(wholes, cores=cores, min_tasks=min_tasks, is_ordered=is_ordered)
    for whole in wholes:
        mine = [task for task in tasks if task.wanted.topic == whole.topic]
        assert [task.slot for task in mine] == list(range(len(mine)))
        assert [entry for task in mine for entry in entries_of(task.wanted.spans)] == entries_of(whole.spans)
        assert all(task.wanted.first_index == 0 and task.wanted.last_index is None for task in mine)
        if is_ordered:
            assert len(mine) == 1
    entries = sum(whole.entries for whole in wholes)
    if not is_ordered:
        assert len(tasks) >= min(entries, min_tasks or 2 * cores)
    assert make_tasks(wholes, cores=cores, min_tasks=min_tasks, is_ordered=is_ordered) == tasks
    plan = Plan(number=1, run_id="r", tasks=tasks)
    assert plan.ends == {whole.topic: whole.end for whole in wholes}


@given(backlogs(), st.text(), st.booleans())
def test_a_record_is_read_as_it_was_written(wholes: list[TopicRange], text: str, is_done: bool) -> None:
    tasks = make_tasks(wholes, cores=2, min_tasks=None, is_ordered=False)
    plan = Plan(number=7, run_id=text, tasks=tasks, outputs=3, shuffles=4)
    record = Record(incarnation=text, owner="me", plan=plan, is_done=is_done, ends=plan.ends)
    assert decode(encode(record)) == record
    assert decode(encode(replace(record, plan=None))) == replace(record, plan=None)


@pytest.mark.parametrize("data", [b"", b"hello", encode(Record(incarnation="l", owner="o"))[:-3]])
def test_what_is_no_plan_is_said(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="key __spark_plan__ of the function's state is not a plan"):
        decode(data)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TableServer]:
    server = TableServer.start(tmp_path_factory.mktemp("state"))
    yield server
    server.stop()


@pytest.fixture
def tables(service: TableServer) -> Iterator[TableClient]:
    with contextlib.closing(TableClient(service.url)) as client:
        client.drop(TABLE)
        yield client


def plan(number: int, first: int = 0) -> Plan:
    return Plan(number=number, run_id=f"r{number}", tasks=(Task(0, TopicRange("t", (Span(1, first, first + 9),))),))


def store(tables: TableClient, owner: str, incarnation: str = "incarnation") -> PlanStore:
    it = PlanStore(tables, TABLE, incarnation=incarnation, owner=owner)
    it.load()
    return it


def test_a_plan_goes_from_begin_to_finish(tables: TableClient) -> None:
    mine = store(tables, "me")
    assert (mine.record.plan, mine.record.ends, mine.next_number) == (None, {}, 1)
    mine.begin(plan(1))
    assert store(tables, "me").record.open_plan == plan(1)
    # The one before is fenced, though it is the same worker's.
    assert mine.is_fenced()
    mine = store(tables, "me")
    mine.finish()
    assert mine.record.open_plan is None
    assert (mine.record.ends, mine.next_number) == ({"t": Position(1, 9)}, 2)
    mine.begin(plan(2, 10))
    mine.finish()
    assert store(tables, "other").record.ends == {"t": Position(1, 19)}


def test_of_two_drivers_that_plan_at_once_one_stops(tables: TableClient) -> None:
    one, two = store(tables, "one"), store(tables, "two")
    one.begin(plan(1))
    with pytest.raises(RunFenced, match="driver one has taken over the function from driver two"):
        two.begin(plan(1))
    one.finish()


def test_a_driver_whose_plan_was_taken_over_cannot_finish_it(tables: TableClient) -> None:
    one = store(tables, "one")
    one.begin(plan(1))
    assert not one.is_fenced()
    two = store(tables, "two")
    assert two.record.open_plan == plan(1)
    assert one.is_fenced()
    with pytest.raises(RunFenced, match="driver two has taken over the function from driver one"):
        one.finish()
    two.finish()


def test_a_reset_gives_up_what_was_planned_before(tables: TableClient) -> None:
    old = store(tables, "old", "incarnation 0")
    old.begin(plan(1))
    new = store(tables, "new", "incarnation 1")
    assert (new.record.open_plan, new.record.ends, new.next_number) == (None, {}, 2)
    new.begin(plan(2))
    with pytest.raises(RunFenced):
        old.finish()
    new.finish()
    assert store(tables, "late", "incarnation 1").record.ends == {"t": Position(1, 9)}


class Forgetful(TableClient):
    """Loses the answer to each first put."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.lost = 0

    def put(
        self, table: str, key: bytes, data: bytes, expected_version: int | None = None, timeout_s: float = 10.0
    ) -> int:
        version = super().put(table, key, data, expected_version, timeout_s)
        if not self.lost:
            self.lost = version
            raise StateStoreUnavailable("the answer is lost")
        self.lost = 0
        return version


def test_a_change_whose_answer_was_lost_is_known_as_ones_own(service: TableServer, tables: TableClient) -> None:
    with contextlib.closing(Forgetful(service.url)) as client:
        mine = store(client, "me")
        mine.begin(plan(1))
        [value] = tables.read(TABLE, [KEY])
        assert value is not None
        assert value.version == client.lost
        client.lost = 0
        mine.finish()
    assert store(tables, "other").record.ends == {"t": Position(1, 9)}


def test_outputs_of_one_entry_are_cut_where_they_are_too_large(tmp_path: Path) -> None:
    pytest.importorskip("uvloop")
    from magnetar.spark.jobs.range_task import cut_outputs

    small, large = [b"a"] * 1000, [bytes(2_000_000)] * 5
    assert list(cut_outputs(small, None)) == [(small, None)]
    pieces = list(cut_outputs(large, None))
    assert [len(payloads) for payloads, _ in pieces] == [2, 2, 1]
    with pytest.raises(MessageTooLarge, match="output of 6000016 bytes exceeds the message limit"):
        list(cut_outputs([b"a", bytes(6_000_000)], None))
