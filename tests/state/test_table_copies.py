"""Copies of tables against a dictionary: kept, put back, repeated, late, killed; and who may change a table then."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from magnetar.errors import FencedByPosition, StateRefused, StateStoreFailed
from magnetar.state import copies
from magnetar.state.client import Increment, OutboxEntry, Position, Put, TableClient
from magnetar.state.codec import encode_changes
from magnetar.state.database import open_reader
from magnetar.state.names import split_epoch, with_epoch
from magnetar.state.store import TableStore
from magnetar.state.tables import LARGE_BYTES
from magnetar.state.transaction import Transaction
from magnetar.wire import state_pb2 as pb

from .conftest import TABLE
from .test_table_model import CHANGES, TABLES, Model, changed

NAMES = ("t/n/f", "t/n/g")


class CopyMachine(RuleBasedStateMachine):
    """Changes, copies and restorations in any order, each as the dictionaries say."""

    @initialize()
    def start(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.store = TableStore.open(Path(self.directory.name))
        self.models: dict[str, Model] = {}
        self.kept: dict[str, dict[int, Model]] = {name: {} for name in NAMES}
        self.epochs = dict.fromkeys(NAMES, 0)
        self.number = 0
        self.highest: dict[tuple[str, bytes], int] = {}

    @rule(table=TABLES, changes=CHANGES, behind=st.integers(0, 1))
    def apply(self, table: str, changes: list[Put], behind: int) -> None:
        self.number += 1
        after = changed(self.models.get(table, {}), list(changes))
        epoch = max(0, self.epochs[table] - behind)
        request = pb.ApplyRequest(
            table=table, writer=b"w" * 16, sequence=self.number, changes=encode_changes(changes), epoch=epoch
        )
        if epoch < self.epochs[table]:
            with pytest.raises(FencedByPosition):
                self.store.apply(request)
        elif after is None:
            with pytest.raises(StateRefused):
                self.store.apply(request)
        else:
            self.store.apply(request)
            self.models[table] = after

    @rule(table=TABLES, later=st.integers(-2, 3))
    def keep(self, table: str, later: int) -> None:
        version = max(0, max(self.kept[table], default=0) + later)
        self.store.keep(table, version)
        if all(version > one for one in self.kept[table]):
            self.kept[table][version] = dict(self.models.setdefault(table, {}))
            for old in sorted(self.kept[table])[: -copies.KEPT_VERSIONS_MAX]:
                del self.kept[table][old]

    @rule(table=TABLES, behind=st.integers(-1, 4), later=st.integers(-1, 2))
    def restore(self, table: str, behind: int, later: int) -> None:
        version = max(0, max(self.kept[table], default=0) - behind)
        epoch = max(0, self.epochs[table] + later)
        is_kept = version in self.kept[table]
        assert self.store.restore(table, version, epoch) is is_kept
        if is_kept and epoch > self.epochs[table]:
            self.epochs[table] = epoch
            self.models[table] = dict(self.kept[table][version])

    @rule(table=TABLES)
    def drop(self, table: str) -> None:
        self.store.drop(table)
        self.models.pop(table, None)
        self.kept[table], self.epochs[table] = {}, 0

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = TableStore.open(Path(self.directory.name))

    @invariant()
    def everything_is_as_the_models_say(self) -> None:
        if not hasattr(self, "store"):
            return
        for table in NAMES:
            model = self.models.get(table, {})
            keys = [b"a", b"b", b"c", b"d", "ü".encode(), b"\x00"]
            found = dict(zip(keys, self.store.read(table, keys), strict=True))
            assert {
                key: value.data if value.number is None else value.number for key, value in found.items() if value
            } == model
            for key, value in found.items():
                assert value is None or value.version >= self.highest.get((table, key), 0)
                self.highest[table, key] = value.version if value else self.highest.get((table, key), 0)
            assert self.store.kept(table) == sorted(self.kept[table], reverse=True)
        assert self.store.names("", "") == sorted(self.models)
        large = [
            value
            for model in (*self.models.values(), *(one for kept in self.kept.values() for one in kept.values()))
            for value in model.values()
            if isinstance(value, bytes) and len(value) > LARGE_BYTES
        ]
        connection = open_reader(Path(self.directory.name))
        (count,) = connection.execute("SELECT count(*) FROM large").fetchone()
        connection.close()
        assert count == len(large), "a large value that nothing holds"

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.directory.cleanup()


TestCopies = pytest.mark.slow(CopyMachine.TestCase)
TestCopies.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)


def number(tables: TableClient, key: bytes = b"n") -> int | None:
    (value,) = tables.read(TABLE, [key])
    return None if value is None else value.number


def test_what_was_kept_comes_back_and_can_come_back_again(tables: TableClient, write: Callable[..., None]) -> None:
    large = os.urandom(50_000)
    write(Increment(b"n", 3), Put(b"large", large), Put(b"text", b"x"))
    tables.keep(TABLE, 4)
    write(Increment(b"n", 39), Put(b"large", b"l" * 2000), Put(b"later", b"y" * 9000))
    for epoch in (6, 8):
        assert tables.restore(TABLE, 4, epoch)
        found = tables.read(TABLE, [b"n", b"large", b"text", b"later"])
        assert [None if one is None else one.data for one in found] == [bytes([0] * 7 + [3]), large, b"x", None]
        tables.put(with_epoch(TABLE, epoch), b"large", b"again")
    assert tables.kept(TABLE) == [4]


def test_who_began_before_a_restoration_changes_nothing_any_more(
    tables: TableClient, write: Callable[..., None]
) -> None:
    write(Increment(b"n", 1))
    tables.commit(TABLE, "u", "p", None, Position(1, 0), [], [OutboxEntry("o", 1, 1, b"x", Position(1, 0))], None)
    tables.keep(TABLE, 0)
    assert tables.restore(TABLE, 0, 2)
    with pytest.raises(FencedByPosition, match="was restored to an earlier version by version 2"):
        write(Increment(b"n", 1))
    with pytest.raises(FencedByPosition):
        tables.commit(TABLE, "u", "p", Position(1, 0), Position(1, 1), [Increment(b"n", 1)], [], None)
    with pytest.raises(FencedByPosition):
        tables.commit(TABLE, "u", "another", None, Position(1, 1), [Increment(b"n", 1)], [], None)
    with pytest.raises(FencedByPosition):
        tables.put(TABLE, b"n", b"1")
    assert number(tables) == 1
    now = with_epoch(TABLE, 2)
    assert tables.open(now, "u", "p").position == Position(1, 0)
    tables.commit(now, "u", "p", Position(1, 0), Position(1, 1), [Increment(b"n", 5)], [], None)
    assert number(tables) == 6


def test_positions_and_outputs_stay_as_they_are_now(tables: TableClient) -> None:
    def output(entry: int) -> OutboxEntry:
        return OutboxEntry("o", entry, 1, b"%d" % entry, Position(1, entry))

    tables.commit(TABLE, "u", "p", None, Position(1, 0), [Increment(b"n", 1)], [output(0)], None)
    tables.keep(TABLE, 0)
    tables.commit(TABLE, "u", "p", Position(1, 0), Position(1, 7), [Increment(b"n", 7)], [output(7)], Position(1, 0))
    assert tables.restore(TABLE, 0, 2)
    opened = tables.open(with_epoch(TABLE, 2), "u", "p")
    assert (opened.position, opened.outbox) == (Position(1, 7), [output(7)])
    assert number(tables) == 1


def test_a_call_that_was_answered_is_not_made_again_after_a_restoration(tables: TableClient) -> None:
    writer = os.urandom(16)
    tables.apply(TABLE, writer, 1, [Increment(b"n", 1)])
    tables.keep(TABLE, 0)
    assert tables.restore(TABLE, 0, 1)
    tables.apply(with_epoch(TABLE, 1), writer, 1, [Increment(b"n", 1)])
    assert number(tables) == 1


def test_repeated_and_late_calls_find_their_work_done(tables: TableClient, write: Callable[..., None]) -> None:
    write(Increment(b"n", 1))
    tables.keep(TABLE, 3)
    write(Increment(b"n", 1))
    tables.keep(TABLE, 3)
    tables.keep(TABLE, 2)
    assert tables.kept(TABLE) == [3]
    assert tables.restore(TABLE, 3, 5)
    assert number(tables) == 1
    tables.put(with_epoch(TABLE, 5), b"n", b"new")
    assert tables.restore(TABLE, 3, 5)
    assert tables.restore(TABLE, 3, 4)
    assert tables.read(TABLE, [b"n"])[0].data == b"new"  # type: ignore[union-attr]


def test_without_a_copy_nothing_is_put_back(tables: TableClient, write: Callable[..., None]) -> None:
    write(Increment(b"n", 1))
    assert not tables.restore(TABLE, 3, 5)
    write(Increment(b"n", 1))
    assert number(tables) == 2
    assert not tables.restore("public/default/never", 3, 5)
    assert tables.tables() == [TABLE]


def test_the_last_copies_are_kept_and_go_with_their_table(tables: TableClient, write: Callable[..., None]) -> None:
    for version in range(5):
        write(Increment(b"n", 1))
        tables.keep(TABLE, version)
    assert tables.kept(TABLE) == [4, 3, 2]
    assert tables.tables() == [TABLE]
    assert tables.statistics()["tables"] == 1
    tables.drop(with_epoch(TABLE, 9))
    assert (tables.kept(TABLE), tables.tables()) == ([], [])


def test_a_copy_has_no_name_that_may_be_asked_for(tmp_path: Path) -> None:
    store = TableStore.open(tmp_path)
    store.keep(TABLE, 1)
    with pytest.raises(StateRefused, match="expected tenant/namespace/name"):
        store.read(f"{TABLE}:kept:1", [b"n"])
    store.close()


def test_an_instance_that_has_kept_what_it_read_is_told(tables: TableClient, write: Callable[..., None]) -> None:
    write(Increment(b"n", 1))
    tables.keep(TABLE, 1)
    before = tables.look(TABLE, [b"n"], b"w" * 16).generation
    assert tables.restore(TABLE, 1, 2)
    assert tables.look(TABLE, [b"n"], b"w" * 16).generation != before


@pytest.mark.parametrize("name", ["t/n/f", "t/n/f@0123abc", "t/n/f@u#1"])
def test_epochs_are_part_of_names(name: str) -> None:
    assert split_epoch(with_epoch(name, 12)) == (name, 12)
    assert split_epoch(with_epoch(name, 0)) == (name, 0)


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("what", ["keep", "restore"])
def test_what_a_killed_process_has_begun_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, step: int
) -> None:
    """Each transaction of a copy is the last one that the process makes; then it is done again."""
    monkeypatch.setattr(copies, "PIECE_ROWS", 100)
    store = TableStore.open(tmp_path)
    keys = [b"%04d" % i for i in range(200)]
    store.apply(
        pb.ApplyRequest(
            table=TABLE, writer=b"w" * 16, sequence=1, changes=encode_changes([Put(key, key) for key in keys])
        )
    )
    if what == "restore":
        store.keep(TABLE, 1)
        store.apply(
            pb.ApplyRequest(
                table=TABLE, writer=b"w" * 16, sequence=2, changes=encode_changes([Put(key, b"") for key in keys])
            )
        )
    submit, left = store._submit, step

    def some(work: Callable[[Transaction], int], rows: int) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return submit(work, rows)

    store._copies._submit = some
    with pytest.raises(KeyboardInterrupt):
        store.keep(TABLE, 1) if what == "keep" else store.restore(TABLE, 1, 4)
    store.close()
    store = TableStore.open(tmp_path)
    assert not [name for name in store._tables if "unfinished" in name]
    assert store.kept(TABLE) == ([] if what == "keep" else [1])
    held = {value.data for value in store.read(TABLE, keys) if value is not None}
    assert held == ({b""} if what == "restore" else set(keys)), "not a part of it is seen"
    store.keep(TABLE, 1) if what == "keep" else store.restore(TABLE, 1, 4)
    assert [value.data for value in store.read(TABLE, keys) if value is not None] == keys
    assert store.kept(TABLE) == [1]
    store.close()


def test_others_read_and_write_while_a_copy_is_made_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "PIECE_ROWS", 100)
    store = TableStore.open(tmp_path)
    keys = [b"%05d" % i for i in range(20_000)]

    def put(sequence: int, data: bytes, table: str = TABLE, epoch: int = 0) -> None:
        changes = encode_changes([Put(key, data) for key in keys])
        store.apply(pb.ApplyRequest(table=table, writer=b"w" * 16, sequence=sequence, changes=changes, epoch=epoch))

    put(1, b"before")
    thread = threading.Thread(target=lambda: store.keep(TABLE, 1))
    thread.start()
    sequence = 1
    while thread.is_alive():
        sequence += 1
        put(sequence, b"%d" % sequence)
        assert all(store.read(TABLE, keys[:10]))
    thread.join()
    assert sequence > 2
    problems: list[BaseException] = []

    def read() -> None:
        try:
            while thread.is_alive():
                found = store.read(TABLE, keys[-100:])
                assert len({value.data for value in found if value is not None}) == 1
                assert all(found)
        except BaseException as error:  # noqa: BLE001  whatever it is, the test is to fail
            problems.append(error)

    thread = threading.Thread(target=lambda: store.restore(TABLE, 1, 2))
    thread.start()
    readers = [threading.Thread(target=read) for _ in range(3)]
    for one in readers:
        one.start()
    for one in (thread, *readers):
        one.join()
    assert not problems
    contents = {value.data for value in store.read(TABLE, keys) if value is not None}
    assert len(contents) == 1, "of one moment"
    store.close()


def test_a_second_copy_waits_for_its_turn_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "TURN_WAIT_S", 0.05)
    store = TableStore.open(tmp_path)
    with store._copies._turn, pytest.raises(StateStoreFailed, match="another state copy is in progress: retry later"):
        store.keep(TABLE, 1)
    store.keep(TABLE, 1)
    store.close()


def test_a_table_that_is_removed_meanwhile_fails_its_copy_alone(tmp_path: Path) -> None:
    store = TableStore.open(tmp_path)
    store.apply(pb.ApplyRequest(table=TABLE, writer=b"w" * 16, sequence=1, changes=encode_changes([Put(b"k", b"v")])))
    submit = store._submit

    def drop_first(work: Callable[[Transaction], int], rows: int) -> int:
        if rows == 1 and work.__name__ == "insert":
            store.drop(TABLE)
        return submit(work, rows)

    store._copies._submit = drop_first
    with pytest.raises(StateRefused, match="was deleted while it was being copied"):
        store.keep(TABLE, 1)
    assert (store.kept(TABLE), store.names("", "")) == ([], [])
    store.close()


def test_copies_whose_table_an_older_version_removed_are_removed(tmp_path: Path) -> None:
    store = TableStore.open(tmp_path)
    store.keep(TABLE, 1)

    def drop_alone(transaction: Transaction) -> int:
        transaction.drop_table(TABLE)
        return 0

    store._submit(drop_alone, 1)
    store.close()
    store = TableStore.open(tmp_path)
    assert not store._tables
    store.close()


@pytest.mark.slow
def test_many_keys_are_kept_and_put_back_while_others_go_on(tmp_path: Path) -> None:
    store = TableStore.open(tmp_path)
    for start in range(0, 200_000, 10_000):
        rows = [Put(b"key-%09d" % i, b"v" * 50) for i in range(start, start + 10_000)]
        store.apply(pb.ApplyRequest(table=TABLE, writer=b"w" * 16, sequence=start + 1, changes=encode_changes(rows)))
    for what in ("keep", "restore"):
        thread = threading.Thread(
            target=lambda what=what: store.keep(TABLE, 1) if what == "keep" else store.restore(TABLE, 1, 2)
        )
        began_s, waits_s, sequence = time.monotonic(), [], 0
        thread.start()
        while thread.is_alive():
            sequence += 1
            asked_s = time.monotonic()
            one = encode_changes([Increment(b"n", 1)])
            store.apply(pb.ApplyRequest(table="t/n/o", writer=what.encode().ljust(16), sequence=sequence, changes=one))
            waits_s.append(time.monotonic() - asked_s)
        thread.join()
        took_s = time.monotonic() - began_s
        waits_s.sort()
        median_s = waits_s[len(waits_s) // 2]
        print(f"{what}: {took_s:.1f} s; {len(waits_s)} writes of others: {median_s:.3f} s, longest {waits_s[-1]:.2f} s")
        assert took_s < 60
    assert store.read(TABLE, [b"key-000199999"])[0].data == b"v" * 50  # type: ignore[union-attr]
    store.close()
