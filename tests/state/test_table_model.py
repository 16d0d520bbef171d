"""The table service against a dictionary: random calls, repeated calls, restarts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from magnetar.errors import BadVersion, FencedByPosition, StateRefused
from magnetar.state.client import Change, Delete, Increment, OutboxEntry, Position, Put
from magnetar.state.codec import encode_changes, encode_outbox, encode_position
from magnetar.state.database import open_reader
from magnetar.state.store import TableStore
from magnetar.state.tables import LARGE_BYTES
from magnetar.state.values import COUNTER_MAX, COUNTER_MIN, counter_bytes, counter_number
from magnetar.wire import state_pb2 as pb

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", "ü".encode(), b"\x00"])
AMOUNTS = st.one_of(st.integers(-3, 3), st.sampled_from([COUNTER_MAX, COUNTER_MIN]))
CHANGES: st.SearchStrategy[list[Change]] = st.lists(
    st.one_of(
        st.builds(Put, KEYS, st.sampled_from([b"", b"x", bytes(8), b"\xff" * 8, b"large" * 200, b"larger" * 2000])),
        st.builds(Delete, KEYS),
        st.builds(Increment, KEYS, AMOUNTS),
    ),
    max_size=6,
)
TABLES = st.sampled_from(["t/n/f", "t/n/g"])

Model = dict[bytes, bytes | int]


def changed(model: Model, changes: list[Change]) -> Model | None:
    """The dictionary after the changes; None if one of them must be refused."""
    after = dict(model)
    for change in changes:
        if isinstance(change, Put):
            after[change.key] = change.data
        elif isinstance(change, Delete):
            after.pop(change.key, None)
        else:
            held = after.get(change.key, 0)
            number = held if isinstance(held, int) else counter_number(held)
            if number is None or not COUNTER_MIN <= number + change.amount <= COUNTER_MAX:
                return None
            after[change.key] = number + change.amount
    return after


class TableMachine(RuleBasedStateMachine):
    """Calls in any order, each as the dictionary says."""

    @initialize()
    def start(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.store = TableStore.open(Path(self.directory.name))
        self.models: dict[str, Model] = {}
        self.sequence = 0
        self.positions: dict[str, Position | None] = {}
        self.outbox: dict[str, list[OutboxEntry]] = {}
        self.versions: dict[tuple[str, bytes], int] = {}

    @rule(table=TABLES, changes=CHANGES, repeated=st.booleans())
    def apply(self, table: str, changes: list[Change], repeated: bool) -> None:
        self.sequence += 1
        after = changed(self.models.get(table, {}), changes)
        request = pb.ApplyRequest(
            table=table, writer=b"w" * 16, sequence=self.sequence, changes=encode_changes(changes)
        )
        for _ in range(1 + repeated):
            if after is None:
                with pytest.raises(StateRefused):
                    self.store.apply(request)
            else:
                self.store.apply(request)
                self.models[table] = after

    @rule(table=TABLES, changes=CHANGES, outputs=st.integers(0, 2), published=st.booleans(), repeated=st.booleans())
    def commit(self, table: str, changes: list[Change], outputs: int, published: bool, repeated: bool) -> None:
        before = self.positions.get(table)
        new = Position(1, 0) if before is None else Position(before.ledger_id, before.entry_id + 1)
        entries = [OutboxEntry("o", new.entry_id, 1, b"%d" % i, new) for i in range(outputs)]
        after = changed(self.models.get(table, {}), changes)
        request = pb.CommitRequest(
            table=table,
            function_uuid="u",
            partition="p",
            expected=encode_position(before),
            new=encode_position(new),
            changes=encode_changes(changes),
            outbox=encode_outbox(entries),
            published=encode_position(before) if published else None,
        )
        if after is None:
            with pytest.raises(StateRefused):
                self.store.commit(request)
            return
        for _ in range(1 + repeated):
            self.store.commit(request)
        self.models[table], self.positions[table] = after, new
        kept = [] if published and before is not None else self.outbox.get(table, [])
        self.outbox[table] = kept + entries

    @rule(table=TABLES, changes=CHANGES)
    def commit_of_a_frozen_instance(self, table: str, changes: list[Change]) -> None:
        request = pb.CommitRequest(
            table=table,
            function_uuid="u",
            partition="p",
            expected=pb.Position(ledger_id=7, entry_id=7),
            new=pb.Position(ledger_id=7, entry_id=8),
            changes=encode_changes(changes),
        )
        with pytest.raises(FencedByPosition):
            self.store.commit(request)

    @rule(table=TABLES, key=KEYS, data=st.sampled_from([b"", b"data", b"l" * 701]), is_right=st.booleans())
    def put(self, table: str, key: bytes, data: bytes, is_right: bool) -> None:
        held = self.store.read(table, [key])[0]
        version = held.version if held else 0
        if is_right:
            new = self.store.put(table, key, data, version)
            assert new > self.versions.get((table, key), 0)
            self.versions[table, key] = new
            self.models.setdefault(table, {})[key] = data
        else:
            with pytest.raises(BadVersion):
                self.store.put(table, key, data, version + 1)

    @rule(table=TABLES)
    def drop(self, table: str) -> None:
        self.store.drop(table)
        for kept in (self.models, self.positions, self.outbox):
            kept.pop(table, None)

    @rule()
    @precondition(lambda self: self.sequence % 3 == 0)
    def restart(self) -> None:
        self.store.close()
        self.store = TableStore.open(Path(self.directory.name))

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        if not hasattr(self, "store"):
            return
        for table in ("t/n/f", "t/n/g"):
            model = self.models.get(table, {})
            keys = [b"a", b"b", b"c", b"d", "ü".encode(), b"\x00"]
            for key, value in zip(keys, self.store.read(table, keys), strict=True):
                expected = model.get(key)
                if isinstance(expected, int):
                    assert value is not None
                    assert (value.number, value.data) == (expected, counter_bytes(expected))
                else:
                    assert (value and value.number) is None
                    assert (value.data if value else None) == expected
            large = [value for value in model.values() if isinstance(value, bytes) and len(value) > LARGE_BYTES]
            assert self.large_values(table) == len(large), "a large value that nothing holds"
            assert self.store.open_partition(table, "u", "p") == (self.positions.get(table), self.outbox.get(table, []))

    def large_values(self, table: str) -> int:
        connection = open_reader(Path(self.directory.name))
        (count,) = connection.execute(
            "SELECT count(*) FROM large WHERE table_id = (SELECT id FROM state_table WHERE name = ?)", (table,)
        ).fetchone()
        connection.close()
        return int(count)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.directory.cleanup()


TestTableModel = pytest.mark.slow(TableMachine.TestCase)
TestTableModel.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
