"""What the table service promises, through its client."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import BadVersion, ClosedError, FencedByPosition, InvalidConfig, StateRefused
from magnetar.state.client import Delete, Increment, OutboxEntry, Position, Put, TableClient, Value
from magnetar.state.codec import encode_changes
from magnetar.state.database import open_reader, open_writer
from magnetar.state.generations import Generations
from magnetar.state.limits import COMMIT_CHANGES_MAX, READ_ANSWER_BYTES, VALUE_BYTES_MAX, address_of
from magnetar.state.server import TableServer
from magnetar.state.store import TableStore
from magnetar.state.values import COUNTER_MAX, COUNTER_MIN
from magnetar.wire import state_pb2 as pb

from .conftest import TABLE

Write = Callable[..., None]
W, X, Y = b"w" * 16, b"x" * 16, b"y" * 16
UUID, INPUT = "uuid", "persistent://public/default/in-partition-0"


def held(tables: TableClient, *keys: bytes, table: str = TABLE) -> list[bytes | int | None]:
    """What keys hold: bytes, the number of a counter, or nothing."""
    return [
        None if value is None else value.data if value.number is None else value.number
        for value in tables.read(table, keys)
    ]


def output(position: Position, payload: bytes = b"payload") -> OutboxEntry:
    return OutboxEntry("persistent://public/default/out-partition-1", 1 << 40, 3, payload, position)


def test_changes_are_read_back(tables: TableClient, write: Write) -> None:
    write(Put(b"a", b"1"), Put(b"empty", b""), Increment(b"n", 3), Put(b"gone", b"x"))
    write(Increment(b"n", -5), Delete(b"gone"), Delete(b"never there"))
    assert held(tables, b"a", b"empty", b"n", b"gone", b"missing") == [b"1", b"", -2, None, None]


def test_a_counter_read_as_bytes_is_its_number_in_eight_bytes(tables: TableClient, write: Write) -> None:
    write(Increment(b"n", 258))
    value = tables.read(TABLE, [b"n"])[0]
    assert value is not None
    assert (value.data, value.number) == (bytes([0, 0, 0, 0, 0, 0, 1, 2]), 258)


def test_eight_bytes_that_were_put_can_be_counted_on(tables: TableClient, write: Write) -> None:
    write(Put(b"n", (-7).to_bytes(8, "big", signed=True)))
    write(Increment(b"n", 2), Increment(b"other", 1))
    assert held(tables, b"n", b"other") == [-5, 1]


def test_changes_of_one_key_in_one_call_keep_their_order(tables: TableClient, write: Write) -> None:
    write(
        Increment(b"n", 1),
        Delete(b"n"),
        Increment(b"n", 5),
        Put(b"a", b"1"),
        Delete(b"a"),
        Put(b"b", b"1"),
        Put(b"b", b"2"),
    )
    assert held(tables, b"n", b"a", b"b") == [5, None, b"2"]


def test_refused_change_names_its_key_and_leaves_the_whole_call_undone(tables: TableClient, write: Write) -> None:
    write(Put(b"text", b"no number"), Increment(b"n", 1))
    with pytest.raises(StateRefused, match="'text' holds 9 bytes, not a counter: delete it") as refusal:
        write(Increment(b"n", 1), Put(b"new", b"x"), Increment(b"text", 1))
    assert refusal.value.key == b"text"
    assert held(tables, b"n", b"new", b"text") == [1, None, b"no number"]


def test_refusal_names_even_the_longest_key(tables: TableClient, write: Write) -> None:
    key = bytes(range(256)) * 16
    write(Put(key, b"no number"))
    with pytest.raises(StateRefused, match="holds 9 bytes, not a counter") as refusal:
        write(Increment(key, 1))
    assert refusal.value.key == key
    assert len(str(refusal.value)) < 500
    assert "\n" not in str(refusal.value)


def test_changes_whose_columns_do_not_fit_are_refused(tmp_path: Path) -> None:
    store = TableStore.open(tmp_path)
    for changes in (
        pb.Changes(kinds=b"I", keys=[b"k"]),
        pb.Changes(kinds=b"PP", keys=[b"k"], data=[b""]),
        pb.Changes(kinds=b"?", keys=[b"k"]),
        pb.Changes(kinds=b"D", keys=[b"k"], amounts=[1]),
    ):
        with pytest.raises(StateRefused, match="malformed changes: "):
            store.apply(pb.ApplyRequest(table=TABLE, writer=W, sequence=1, changes=changes))
    store.close()


def test_refused_first_call_leaves_no_table_that_is_half_there(tables: TableClient, write: Write) -> None:
    with pytest.raises(StateRefused):
        write(Increment(b"n", COUNTER_MAX), Increment(b"n", 1))
    write(Increment(b"n", 1))
    assert held(tables, b"n") == [1]


@pytest.mark.parametrize(("start", "more"), [(COUNTER_MAX, 1), (COUNTER_MIN, -1), (1, COUNTER_MAX)])
def test_counter_beyond_64_bits_is_refused(tables: TableClient, write: Write, start: int, more: int) -> None:
    write(Increment(b"n", start))
    with pytest.raises(StateRefused, match=f"'n' is at {start}: adding {more} exceeds 64 bits"):
        write(Increment(b"n", more))
    assert held(tables, b"n") == [start]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Put(b"", b""), "1 to 4096 bytes, not 0"),
        (Put(b"k" * 4097, b""), "1 to 4096 bytes, not 4097"),
        (Put(b"big", bytes(VALUE_BYTES_MAX + 1)), "'big' has 1048577 bytes, more than the limit of 1048576"),
        (Increment(b"n", COUNTER_MAX + 1), "9223372036854775808 of state key 'n' exceeds 64 bits"),
    ],
)
def test_change_beyond_a_limit_is_refused(write: Write, change: Put | Increment, words: str) -> None:
    with pytest.raises(StateRefused, match=words) as refusal:
        write(change)
    assert refusal.value.key == change.key


def test_call_beyond_a_limit_is_refused(tables: TableClient, write: Write) -> None:
    with pytest.raises(StateRefused, match="20001 state changes in one call exceed the limit of 20000"):
        write(*(Increment(b"%d" % i, 1) for i in range(20_001)))
    with pytest.raises(StateRefused, match="the limit of 33554432: make several calls"):
        write(*(Put(b"%d" % i, bytes(VALUE_BYTES_MAX)) for i in range(33)))
    with pytest.raises(StateRefused, match="20001 state keys in one read"):
        tables.read(TABLE, [b"k"] * 20_001)
    with pytest.raises(StateRefused, match="16 bytes and a positive sequence number, not 3 bytes and 1"):
        tables.apply(TABLE, b"abc", 1, [])
    with pytest.raises(StateRefused, match="invalid state table 'f': expected tenant/namespace/name"):
        tables.read("f", [b"k"])


@pytest.mark.slow
def test_largest_call_is_taken_and_read_back_in_several_answers(tables: TableClient, write: Write) -> None:
    keys = [b"%d" % i for i in range(31)]
    write(*(Put(key, key[:1] * VALUE_BYTES_MAX) for key in keys))
    assert 31 * VALUE_BYTES_MAX > 2 * READ_ANSWER_BYTES
    asked = [keys[7], b"missing", *keys]
    assert [value and value.data[:1] for value in tables.read(TABLE, asked)] == [b"7", None, *(key[:1] for key in keys)]


def test_many_keys_are_read_in_the_order_asked(tables: TableClient, write: Write) -> None:
    write(*(Put(b"%d" % i, b"%d" % (i * i)) for i in range(1000)))
    asked = [b"%d" % (i * 37 % 1300) for i in range(700)]
    expected = [b"%d" % (int(key) ** 2) if int(key) < 1000 else None for key in asked]
    assert held(tables, *asked) == expected


def test_generation_changes_with_what_anybody_else_does(tables: TableClient, write: Write) -> None:
    mine = b"m" * 16
    own_changes: list[Callable[[], object]] = [
        lambda: tables.apply(TABLE, mine, 1, [Increment(b"n", 1)]),
        lambda: tables.apply(TABLE, mine, 2, [Put(b"a", b"1")]),
        lambda: tables.apply(TABLE, mine, 2, [Put(b"a", b"1")]),  # repeated
        lambda: tables.commit(TABLE, UUID, INPUT, None, Position(1, 0), [Delete(b"a")], [], None, writer=mine),
        lambda: write(Put(b"a", b"1"), table="public/default/other"),
    ]
    others_changes: list[Callable[[], object]] = [
        lambda: write(Increment(b"n", 1)),
        lambda: tables.put(TABLE, b"a", b"1"),
        lambda: tables.apply(TABLE, b"x" * 16, 1, [Delete(b"a")]),
        lambda: tables.commit(TABLE, UUID, INPUT, Position(1, 0), Position(1, 1), [Put(b"a", b"")], [], None),
        lambda: tables.drop(TABLE),
        lambda: write(Increment(b"n", 1)),
    ]
    seen = {tables.look(TABLE, [], mine).generation}
    assert seen != {0}
    for change in own_changes:
        change()
        assert {tables.look(TABLE, [], mine).generation} == seen
    for count, change in enumerate(others_changes, 2):
        change()
        seen.add(tables.look(TABLE, [], mine).generation)
        assert len(seen) == count
        tables.apply(TABLE, mine, count + 1, [Increment(b"mine", 1)])
        assert tables.look(TABLE, [], mine).generation in seen


def test_look_gives_what_read_gives(tables: TableClient, write: Write) -> None:
    write(Put(b"a", b"1"), Increment(b"n", -3), *(Put(b"%d" % i, bytes(VALUE_BYTES_MAX)) for i in range(9)))
    for keys in ([b"a"], [b"n"], [b"a", b"missing", b"n"], [b"%d" % i for i in range(9)], []):
        values = tables.read(TABLE, keys)
        expected = [value and (value.data if value.number is None else value.number) for value in values]
        assert tables.look(TABLE, keys, W).contents == expected


def test_generations_of_one_process_are_not_those_of_the_next(tmp_path: Path) -> None:
    found = set()
    for _ in range(3):
        server = TableServer.start(tmp_path)
        tables = TableClient(server.url)
        found.add(tables.look(TABLE, [], W).generation)
        tables.close()
        server.stop()
    assert len(found) == 3


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from([b"", W, X])), max_size=40),
    st.integers(1, 4),
)
def test_generation_tells_of_every_change_of_others(changes: list[tuple[str, bytes]], tables_max: int) -> None:
    """Also where tables are more than are told apart; then it may tell of changes that were none."""
    generations = Generations(tables_max)
    before = {(table, reader): generations.of(table, reader) for table in "abcd" for reader in (W, X, Y)}
    for table, writer in changes:
        generations.change(table, writer)
        for (name, reader), known in before.items():
            now = generations.of(name, reader)
            if name == table and reader != writer:
                assert now != known
            elif tables_max == 4:
                assert now == known
            before[name, reader] = now


def test_repeated_call_is_answered_and_not_made_again(tables: TableClient) -> None:
    for _ in range(3):
        tables.apply(TABLE, W, 1, [Increment(b"n", 1)])
    tables.apply(TABLE, W, 5, [Increment(b"n", 10)])
    tables.apply(TABLE, W, 4, [Increment(b"n", 100)])  # late, and answered long ago
    tables.apply(TABLE, b"x" * 16, 1, [Increment(b"n", 1000)])
    assert held(tables, b"n") == [1011]


def test_repeated_calls_are_known_after_a_restart(tmp_path: Path) -> None:
    for _ in range(3):
        server = TableServer.start(tmp_path)
        tables = TableClient(server.url)
        tables.apply(TABLE, W, 1, [Increment(b"n", 1)])
        tables.commit(TABLE, UUID, INPUT, None, Position(3, 0), [Increment(b"n", 10)], [output(Position(3, 0))], None)
        assert held(tables, b"n") == [11]
        assert tables.open(TABLE, UUID, INPUT) == (Position(3, 0), [output(Position(3, 0))])
        tables.close()
        server.stop()


def test_refused_call_may_be_repeated_with_the_same_sequence(tables: TableClient) -> None:
    tables.apply(TABLE, W, 1, [Put(b"n", b"text")])
    with pytest.raises(StateRefused):
        tables.apply(TABLE, W, 2, [Increment(b"n", 1)])
    tables.apply(TABLE, W, 2, [Delete(b"n"), Increment(b"n", 1)])
    assert held(tables, b"n") == [1]


def test_writers_are_forgotten_after_a_week_of_the_service_not_of_the_calendar(tmp_path: Path) -> None:
    now_s = 0.0
    day_s = 24 * 3600.0

    def apply(store: TableStore, writer: bytes, sequence: int = 1) -> None:
        changes = encode_changes([Increment(writer, 1)])
        store.apply(pb.ApplyRequest(table=TABLE, writer=writer, sequence=sequence, changes=changes))

    def numbers(store: TableStore) -> list[int | None]:
        return [value and value.number for value in store.read(TABLE, [W, X, Y])]

    store = TableStore.open(tmp_path, clock=lambda: now_s)
    apply(store, W)
    apply(store, X)
    now_s = 4 * day_s
    apply(store, X, 2)
    store.close()
    now_s = 400 * day_s  # it did not run meanwhile
    store = TableStore.open(tmp_path, clock=lambda: now_s)
    now_s += 2.9 * day_s
    apply(store, W)
    assert numbers(store) == [1, 2, None]
    now_s += 0.2 * day_s
    apply(store, Y)
    apply(store, X, 2)
    apply(store, W)  # nobody repeats a call so late; this shows that it was forgotten
    assert numbers(store) == [2, 2, 1]
    store.close()


def test_commit_moves_the_position_with_changes_and_outputs(tables: TableClient) -> None:
    assert tables.open(TABLE, UUID, INPUT) == (None, [])
    first, second, third = Position(1, 2), Position(1, 7), Position(2, 0)
    tables.commit(TABLE, UUID, INPUT, None, first, [Increment(b"n", 1)], [output(first), output(first, b"2")], None)
    tables.commit(TABLE, UUID, INPUT, first, second, [Increment(b"n", 1)], [output(second)], None)
    assert tables.open(TABLE, UUID, INPUT) == (second, [output(first), output(first, b"2"), output(second)])
    tables.commit(TABLE, UUID, INPUT, second, third, [], [output(third)], first)
    assert tables.open(TABLE, UUID, INPUT) == (third, [output(second), output(third)])
    tables.commit(TABLE, UUID, INPUT, third, third, [], [], third)
    assert tables.open(TABLE, UUID, INPUT) == (third, [])
    assert held(tables, b"n") == [2]


def test_commit_takes_what_a_large_input_batch_changes(tables: TableClient) -> None:
    """It cannot be parted: 1,000 lines of 100 different words are 100,000 changes."""
    changes = [Increment(b"word %d" % number, 1) for number in range(COMMIT_CHANGES_MAX)]
    tables.commit(TABLE, UUID, INPUT, None, Position(1, 0), changes, [], None, timeout_s=120)
    assert held(tables, b"word 0", b"word %d" % (COMMIT_CHANGES_MAX - 1)) == [1, 1]
    with pytest.raises(StateRefused, match=f"{COMMIT_CHANGES_MAX + 1} state changes in one call exceed the limit of"):
        tables.commit(
            TABLE, UUID, INPUT, Position(1, 0), Position(1, 1), [*changes, Increment(b"n", 1)], [], None, timeout_s=120
        )


def test_repeated_commit_is_recognised_by_its_new_position(tables: TableClient) -> None:
    for _ in range(2):
        tables.commit(TABLE, UUID, INPUT, None, Position(1, 2), [Increment(b"n", 1)], [output(Position(1, 2))], None)
    assert tables.open(TABLE, UUID, INPUT) == (Position(1, 2), [output(Position(1, 2))])
    assert held(tables, b"n") == [1]


@pytest.mark.parametrize("expected", [None, Position(1, 1), Position(0, 2)])
def test_commit_from_a_wrong_position_is_fenced(tables: TableClient, expected: Position | None) -> None:
    tables.commit(TABLE, UUID, INPUT, None, Position(1, 2), [], [output(Position(1, 2))], None)
    with pytest.raises(FencedByPosition, match=r"is at 1:2, expected .*another instance took over"):
        tables.commit(
            TABLE, UUID, INPUT, expected, Position(1, 3), [Put(b"a", b"")], [output(Position(1, 3))], Position(1, 2)
        )
    assert tables.open(TABLE, UUID, INPUT) == (Position(1, 2), [output(Position(1, 2))])
    assert held(tables, b"a") == [None]


def test_refused_commit_moves_nothing(tables: TableClient) -> None:
    tables.commit(TABLE, UUID, INPUT, None, Position(1, 1), [Put(b"a", b"text")], [output(Position(1, 1))], None)
    with pytest.raises(StateRefused, match="'a' holds 4 bytes"):
        tables.commit(TABLE, UUID, INPUT, Position(1, 1), Position(1, 2), [Increment(b"a", 1)], [], Position(1, 1))
    assert tables.open(TABLE, UUID, INPUT) == (Position(1, 1), [output(Position(1, 1))])


def test_partitions_and_creates_have_positions_of_their_own(tables: TableClient) -> None:
    tables.commit(TABLE, UUID, INPUT, None, Position(9, 9), [], [output(Position(9, 9))], None)
    other = INPUT.replace("-0", "-1")
    for where in ((TABLE, UUID, other), (TABLE, "later create", INPUT), ("public/default/g", UUID, INPUT)):
        assert tables.open(*where) == (None, [])
        tables.commit(*where, None, Position(1, 0), [], [], Position(99, 0))
    assert tables.open(TABLE, UUID, INPUT) == (Position(9, 9), [output(Position(9, 9))])


def test_put_compares_the_version(tables: TableClient) -> None:
    first = tables.put(TABLE, b"plan", b"1", 0)
    with pytest.raises(BadVersion, match=f"'plan': expected no such key, found version {first}"):
        tables.put(TABLE, b"plan", b"x", 0)
    second = tables.put(TABLE, b"plan", b"2", first)
    assert tables.read(TABLE, [b"plan"]) == [Value(b"2", None, second)]
    with pytest.raises(BadVersion, match=f"expected version {first}, found version {second}; read the key again"):
        tables.put(TABLE, b"plan", b"x", first)
    with pytest.raises(BadVersion, match="found none"):
        tables.put(TABLE, b"other", b"x", second)
    assert tables.put(TABLE, b"plan", b"3") > second


def test_a_version_never_comes_twice(tables: TableClient, write: Write) -> None:
    first = tables.put(TABLE, b"k", b"1", 0)
    write(Delete(b"k"))
    second = tables.put(TABLE, b"k", b"1", 0)
    write(Increment(b"n", 1))
    tables.drop(TABLE)
    third = tables.put(TABLE, b"k", b"1", 0)
    assert first < second < third
    with pytest.raises(BadVersion):
        tables.put(TABLE, b"k", b"2", first)


def test_versions_grow_over_restarts(tmp_path: Path) -> None:
    versions = []
    for _ in range(3):
        server = TableServer.start(tmp_path)
        client = TableClient(server.url)
        versions += [client.put(TABLE, b"k", b"") for _ in range(2)]
        client.close()
        server.stop()
    assert versions == sorted(set(versions))


def test_dropped_table_is_gone_with_positions_outputs_and_writers(tables: TableClient) -> None:
    other = "public/default/other"
    for table in (TABLE, other):
        tables.apply(table, table.encode()[-16:], 1, [Increment(b"n", 1)])
        tables.commit(table, UUID, INPUT, None, Position(1, 1), [], [output(Position(1, 1))], None)
    tables.drop(TABLE)
    tables.drop(TABLE)
    assert held(tables, b"n") == [None]
    assert tables.open(TABLE, UUID, INPUT) == (None, [])
    tables.apply(TABLE, TABLE.encode()[-16:], 1, [Increment(b"n", 5)])
    assert held(tables, b"n") == [5]
    assert held(tables, b"n", table=other) == [1]
    assert tables.open(other, UUID, INPUT) == (Position(1, 1), [output(Position(1, 1))])


def test_increments_of_many_threads_are_all_there(service: TableServer) -> None:
    def count(number: int) -> None:
        client = TableClient(service.url)
        for sequence in range(1, 26):
            client.apply(TABLE, bytes([number]) * 16, sequence, [Increment(b"all", 1), Increment(b"%d" % number, 1)])
        client.close()

    threads = [threading.Thread(target=count, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client = TableClient(service.url)
    assert held(client, b"all", *(b"%d" % number for number in range(8))) == [200, *[25] * 8]
    client.close()


def test_every_connection_is_as_safe_as_promised(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    reader = open_reader(tmp_path)
    assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert writer.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL: each commit syncs the log
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM meta")
    reader.close()
    writer.close()


def test_statistics_count(tables: TableClient, write: Write) -> None:
    write(Put(b"a", b""), Put(b"b", b""))
    found = tables.statistics()
    assert (found["tables"], found["rows_written"], found["failure"]) == (1, 2, "")
    assert found["transactions"] == 1


def test_closed_client_says_so(service: TableServer) -> None:
    client = TableClient(service.url)
    client.close()
    with pytest.raises(ClosedError, match="is closed"):
        client.read(TABLE, [b"k"])


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:4181", "http://h:1", "bk://h", "bk://h:0", "bk://h:65536", "bk://:1", "bk://h:1/x"]
)
def test_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match="expected bk://host:port, such as bk://"):
        TableClient(url)
    assert address_of("bk://[::1]:4181") == ("[::1]", 4181)
