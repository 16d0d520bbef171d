"""What the sink ``jdbc`` makes of values, and whom it refuses, on each database."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from magnetar.api.connector import Record, Retry
from magnetar.api.connector_config import read_config
from magnetar.connectors.jdbc_sink import JdbcSink

from tests.connectors.connector_kit import Opened, opened, write_all
from tests.connectors.direct import DirectContext
from tests.connectors.servers.mariadb import MariaDb
from tests.connectors.servers.postgres import Postgres

__all__ = ["opened"]
pytestmark = pytest.mark.connectors


class SqliteFile:
    """What the tests need of SQLite, as of a server."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.jdbc_url = f"jdbc:sqlite:{path}"

    def execute(self, *statements: str) -> Sequence[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            for statement in statements:
                rows = connection.execute(statement).fetchall()
        return rows


class Database(NamedTuple):
    kind: str
    server: Any
    user: str

    def configs(self, **more: object) -> dict[str, object]:
        return {"jdbcUrl": self.server.jdbc_url, "userName": self.user, "tableName": "t", **more}


@pytest.fixture(scope="module", params=["postgres", "mariadb", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    if request.param == "sqlite":
        yield Database("sqlite", SqliteFile(tmp_path_factory.mktemp("sqlite") / "x.db"), "")
    elif request.param == "postgres":
        with Postgres.running() as postgres:
            yield Database("postgres", postgres, "postgres")
    else:
        with MariaDb.running() as mariadb:
            yield Database("mariadb", mariadb, "root")


@pytest.fixture(autouse=True)
def _no_table(database: Database) -> None:
    database.server.execute("DROP TABLE IF EXISTS t", "DROP TABLE IF EXISTS magnetar_positions")


def rows_of(database: Database, columns: str = "id, text") -> list[tuple[Any, ...]]:
    return [tuple(row) for row in database.server.execute(f"SELECT {columns} FROM t ORDER BY 1")]


def record(key: str | None = None, /, **value: Any) -> Record:
    return Record(json.dumps(value).encode(), key)


COLUMNS = {"id": "integer", "text": "varchar(20)", "amount": "numeric(20,5)"}
TYPES = {"flag": "boolean", "at": "timestamp", "day": "date", "j": "json", "b": "bytes", "n": "number"}


def test_values_of_all_types_are_taken(database: Database, opened: Opened) -> None:
    sink = opened(JdbcSink(), database.configs(createTable=COLUMNS | TYPES))
    sink.write_batch([
        Record(
            '{"id": 1, "text": "Ä🙂\'\\"", "amount": 123456789012345.12345, "flag": true, "day": "2024-02-29",'
            ' "at": "2024-01-02T03:04:05.123456+02:00", "j": {"a": [1, 2.5, null]}, "b": "AAH/", "n": -1.5e3}'
        ),
        record(id=2, text=5, amount="7.25", flag=None, at=None, day=None, j=None, b=None, n=None),
        record(id=3),
    ])  # fmt: skip
    first, second, third = rows_of(database, "id, text, amount, b, n, j")
    assert first[:2] == (1, "Ä🙂'\"")
    if database.kind != "sqlite":  # which has no numbers of so many digits
        assert str(first[2]) == "123456789012345.12345"
    assert bytes(first[3]) == b"\x00\x01\xff"
    assert first[4] == -1500
    assert (json.loads(first[5]) if isinstance(first[5], str) else first[5]) == {"a": [1, 2.5, None]}
    assert second[1] == "5"
    assert float(second[2]) == 7.25
    assert third[1:] == (None, None, None, None, None)
    at = "at AT TIME ZONE 'UTC'" if database.kind == "postgres" else "at"
    ((_, moment, day),) = [row for row in rows_of(database, f"id, {at}, day") if row[0] == 1]
    assert str(day) == "2024-02-29"
    if database.kind != "sqlite":  # which keeps the text
        assert str(moment) == "2024-01-02 01:04:05.123456"


BAD: list[tuple[str, Any, str, set[str]]] = [
    ("no JSON", b"{no", "is not valid JSON", {"postgres", "mariadb", "sqlite"}),
    ("UTF-16", '{"id": 1}'.encode("utf-16"), "is not valid JSON", {"postgres", "mariadb", "sqlite"}),
    ("NaN", b'{"id": 1, "amount": NaN}', "NaN is not a JSON number", {"postgres", "mariadb", "sqlite"}),
    ("a list", b"[1]", "must be a JSON object, not list", {"postgres", "mariadb", "sqlite"}),
    ("unknown column", b'{"id": 1, "nix": 2}', "has no column 'nix'", {"postgres", "mariadb", "sqlite"}),
    ("no field", b"{}", "has no field", {"postgres", "mariadb", "sqlite"}),
    ("no value", b"", "nullValueAction is FAIL", {"postgres", "mariadb", "sqlite"}),
    ("lone surrogate", b'{"id": 1, "text": "\\ud800"}', "surrogate", {"postgres", "mariadb", "sqlite"}),
    ("no base64", b'{"id": 1, "b": "***"}', "base64", {"postgres", "mariadb", "sqlite"}),
    ("too long", b'{"id": 1, "text": "' + b"x" * 21 + b'"}', "too long", {"postgres", "mariadb"}),
    ("too large", b'{"id": 99999999999999999999}', "", {"postgres", "mariadb", "sqlite"}),
    ("too many digits", b'{"id": 1, "amount": 1e30}', "", {"postgres", "mariadb"}),
    ("infinite", b'{"id": 1, "n": 1e999}', "", {"postgres", "mariadb"}),
    ("a text for a number", b'{"id": "one"}', "", {"postgres", "mariadb", "sqlite"}),
    ("no time", b'{"id": 1, "at": "soon"}', "", {"postgres", "mariadb"}),
    ("nanoseconds", b'{"id": 1, "at": "2024-02-29T01:02:03.000000001Z"}', "6 fractional digits", {"mariadb"}),
    ("NUL in a text", b'{"id": 1, "text": "a\\u0000b"}', "cannot be converted to text", {"postgres"}),
    ("null where it must not be", b'{"id": null}', "null", {"postgres", "mariadb"}),
    ("the same key again", b'{"id": 0}', "", {"postgres", "mariadb", "sqlite"}),
]


@pytest.mark.parametrize(("name", "value", "cause", "refusing"), BAD, ids=[bad[0] for bad in BAD])
def test_bad_record_is_refused_alone(
    database: Database, opened: Opened, name: str, value: Any, cause: str, refusing: set[str]
) -> None:
    sink = opened(JdbcSink(), database.configs(createTable=COLUMNS | TYPES, key="id"))
    good = [record(id=number, text=f"n{number}") for number in range(0, 200, 2)]
    bad = Record(value)
    refused = write_all(sink, [*good[:37], bad, *good[37:]])
    if database.kind not in refusing:  # it takes that
        assert not refused
        assert len(rows_of(database)) == 101
        return
    assert [one for one, _ in refused] == [bad]
    assert cause in refused[0][1]
    assert "\n" not in refused[0][1]
    assert rows_of(database) == [(number, f"n{number}") for number in range(0, 200, 2)]


def test_many_bad_records_are_found_one_by_one(database: Database, opened: Opened) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    sink = opened(JdbcSink(), database.configs(createTable={"id": "integer", "text": "text"}, key="id"))
    records = [record(id=rng.randrange(150), text=f"{place}") for place in range(500)]
    refused = write_all(sink, records)
    first: dict[int, str] = {}
    for one in records:
        value = json.loads(one.value)
        first.setdefault(value["id"], value["text"])
    assert dict(rows_of(database)) == first
    assert len(refused) == len(records) - len(first)


def test_upsert_and_delete_leave_the_last_of_each_key(database: Database, opened: Opened) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    create = {"id": "integer", "text": "text", "more": "text"}
    sink = opened(
        JdbcSink(), database.configs(createTable=create, key="id", insertMode="UPSERT", nullValueAction="DELETE")
    )
    expected: dict[int, dict[str, str]] = {}
    records: list[Record] = []
    for place in range(600):
        number = rng.randrange(40)
        what = rng.randrange(4)
        if what == 0:
            expected.pop(number, None)
            records.append(Record(b"", str(number)))
        else:
            fields = {("text", "more")[part]: f"{place}" for part in range(2) if what & (part + 1)}
            expected.setdefault(number, {}).update(fields)
            records.append(record(id=number, **fields))
    assert write_all(sink, records[:300]) == []
    assert write_all(sink, records[300:]) == []
    assert write_all(sink, records[300:]) == []  # again
    found = {number: (text, more) for number, text, more in rows_of(database, "id, text, more")}
    again = {**expected}
    for one in records[300:]:
        number = int(one.key) if one.value == b"" and one.key else json.loads(one.value)["id"]
        if one.value == b"":
            again.pop(number, None)
        else:
            again[number] = {**again.get(number, {}), **{k: v for k, v in json.loads(one.value).items() if k != "id"}}
    assert found == {number: (value.get("text"), value.get("more")) for number, value in again.items()}


def test_changes_with_several_key_columns_are_applied(database: Database, opened: Opened) -> None:
    create = {"a": "integer", "b": "varchar(10)", "text": "text"}
    sink = opened(
        JdbcSink(), database.configs(createTable=create, key="a,b", insertMode="UPSERT", envelope="change")
    )  # fmt: skip
    row = {"a": 1, "b": "x", "text": "one"}
    refused = write_all(sink, [
        record(op="r", before=None, after=row),
        record(op="c", before=None, after=row | {"b": "y"}),
        record(op="u", before=None, after={"a": 1, "b": "x"}),
        record(op="u", before=None, after=row | {"text": "two"}),
        record(op="d", before={"a": 1, "b": "y"}, after=None),
        record(op="t"),
    ])  # fmt: skip
    assert rows_of(database, "a, b, text") == [(1, "x", "two")]
    assert [cause for _, cause in refused] == [
        "invalid row change with op 't': expected op c, r, u or d, and a row in before or after"
    ]


OUT_OF_LINE = "CREATE TABLE t (id integer PRIMARY KEY, text varchar(20), big varchar(20) NOT NULL)"


def change(op: str, row: dict[str, Any], **properties: dict[str, Any]) -> Record:
    """Return a change that does not have the column big, as PostgreSQL does not send it."""
    value = {"op": op, "before": row if op == "d" else None, "after": row if op != "d" else None, "unchanged": ["big"]}
    names = {"new": "__debezium.newkey", "old": "__debezium.oldkey"}
    return Record(
        json.dumps(value).encode(), properties={names[name]: json.dumps(key) for name, key in properties.items()}
    )


def test_change_without_a_column_that_must_not_be_null_keeps_it(database: Database, opened: Opened) -> None:
    database.server.execute(OUT_OF_LINE, "INSERT INTO t VALUES (1, 'a', 'x'), (2, 'b', 'y'), (3, 'c', 'z')")
    sink = opened(JdbcSink(), database.configs(key="id", insertMode="UPSERT", envelope="change"))
    refused = write_all(sink, [
        change("u", {"id": 1, "text": "a2"}), change("u", {"id": 2, "text": "b2"}), change("u", {"id": 3}),
        change("u", {"id": 9, "text": "absent"}), record(op="u", before=None, after={"id": 4, "text": "d", "big": "w"}),
    ])  # fmt: skip
    assert rows_of(database, "id, text, big") == [(1, "a2", "x"), (2, "b2", "y"), (3, "c", "z"), (4, "d", "w")]
    assert [json.loads(one.value)["after"]["id"] for one, _ in refused] == [9]  # there is none, and big is not known


@pytest.mark.parametrize("has_tombstones", [False, True])
def test_change_of_a_key_keeps_what_was_not_sent(database: Database, opened: Opened, has_tombstones: bool) -> None:
    database.server.execute(OUT_OF_LINE, "INSERT INTO t VALUES (1, 'a', 'x'), (2, 'b', 'y'), (3, 'c', 'z')")
    configs = database.configs(key="id", insertMode="UPSERT", envelope="change", nullValueAction="DELETE")
    sink = opened(JdbcSink(), configs)

    def moved(old: int, new: int, text: str) -> list[Record]:
        tombstone = Record(b"", str(old), {"__debezium.newkey": json.dumps({"id": new})})
        return [
            change("d", {"id": old}, new={"id": new}), *([tombstone] if has_tombstones else []),
            change("c", {"id": new, "text": text}, old={"id": old}),
        ]  # fmt: skip

    records = [*moved(1, 10, "a2"), record(op="c", before=None, after={"id": 1, "text": "new", "big": "v"})]
    records += [*moved(2, 20, "b2"), *moved(20, 21, "b3"), *moved(3, 30, "longer than twenty characters")]
    refused = write_all(sink, records)
    expected = [(1, "new", "v"), (3, "c", "z"), (10, "a2", "x"), (21, "b3", "y")]
    if database.kind == "sqlite":  # which takes longer texts
        expected = [one for one in expected if one[0] != 3] + [(30, "longer than twenty characters", "z")]
    assert rows_of(database, "id, text, big") == expected
    assert len(refused) == (database.kind != "sqlite")
    assert write_all(sink, moved(1, 10, "a3") + moved(2, 20, "gone")[:1]) == []  # as if some came again
    assert (10, "a3", "x") in rows_of(database, "id, text, big")
    assert 1 not in [row[0] for row in rows_of(database)]


def test_update_changes_only_rows_that_are_there(database: Database, opened: Opened) -> None:
    database.server.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, text varchar(20), more integer)", "INSERT INTO t VALUES (1, 'a', 1)"
    )
    sink = opened(JdbcSink(), database.configs(key="id", nonKey="text", insertMode="UPDATE"))
    assert write_all(sink, [record(id=1, text="b", more=9), record(id=2, text="c"), record(id=1, text="d")]) == []
    assert rows_of(database, "id, text, more") == [(1, "d", 1)]


def test_fields_that_are_not_declared_are_left_out(database: Database, opened: Opened) -> None:
    create = {"id": "integer", "text": "text", "more": "integer"}
    sink = opened(
        JdbcSink(), database.configs(createTable=create, key="id", nonKey="text", excludeNonDeclaredFields=True)
    )
    assert write_all(sink, [record(id=1, text="b", more=9, nowhere=[])]) == []
    assert rows_of(database, "id, text, more") == [(1, "b", None)]


@pytest.mark.parametrize("switch", ["useTransactions", "useJdbcBatch"])
def test_rows_one_by_one(database: Database, opened: Opened, switch: str) -> None:
    create = {"id": "integer", "text": "text"}
    sink = opened(JdbcSink(), database.configs(createTable=create, key="id", **{switch: False}))
    records = [record(id=number // 2, text=f"{number}") for number in range(40)]
    refused = write_all(sink, records)
    assert [json.loads(one.value)["text"] for one, _ in refused] == [f"{number}" for number in range(1, 40, 2)]
    assert rows_of(database) == [(number, f"{number * 2}") for number in range(20)]


@pytest.mark.parametrize("mode", ["INSERT", "UPSERT"])
def test_positions_leave_out_what_comes_again(database: Database, opened: Opened, mode: str) -> None:
    create = {"id": "integer", "text": "text"}
    configs = database.configs(createTable=create, insertMode=mode, **({"key": "id"} if mode == "UPSERT" else {}))
    topics = ("persistent://p/d/a", "persistent://p/d/b")
    records = [
        replace(record(id=number, text=f"{number}"), topic=topics[number % 2], sequence=1 << 40 | number)
        for number in range(100)
    ]
    records[50].value = b"bad"
    frozen = opened(JdbcSink(), configs, DirectContext(is_exact=True))
    assert [one for one, _ in write_all(frozen, records[:60])] == [records[50]]
    later = opened(JdbcSink(), configs, DirectContext(is_exact=True))
    assert [why for _, why in write_all(later, records[40:])] == ["record was rejected earlier"]
    assert [why for _, why in write_all(frozen, records[45:80])] == ["record was rejected earlier"]
    assert rows_of(database) == [(number, f"{number}") for number in range(100) if number != 50]
    other = DirectContext(is_exact=True)
    other.incarnation = "public/default/kit@2"
    assert write_all(opened(JdbcSink(), configs, other), records[:1]) == []
    assert len(rows_of(database)) == (100 if mode == "INSERT" else 99)


def test_two_instances_write_the_same_records_once(database: Database, opened: Opened) -> None:
    configs = database.configs(createTable={"id": "integer"})
    records = [replace(record(id=number), topic="t", sequence=number) for number in range(400)]
    opened(JdbcSink(), configs, DirectContext(is_exact=True))  # makes the tables
    failures: list[BaseException] = []

    def write() -> None:
        sink = JdbcSink()
        try:
            sink.open(read_config(sink.config, configs), DirectContext(is_exact=True))
            for begin in range(0, 400, 20):
                write_all(sink, records[begin : begin + 20])
        except BaseException as error:  # noqa: BLE001  shown by the test
            failures.append(error)
        finally:
            sink.close()

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert rows_of(database, "id") == [(number,) for number in range(400)]


def test_missing_things_are_named_and_tried_again(database: Database, opened: Opened) -> None:
    with pytest.raises(Retry, match="table 't' does not exist"):
        opened(JdbcSink(), database.configs())
    database.server.execute("CREATE TABLE t (id integer, text varchar(20))")
    with pytest.raises(Retry, match="table 't' has no column 'nix': expected one of id, text"):
        opened(JdbcSink(), database.configs(key="nix"))
    if database.kind == "mariadb":
        with pytest.raises(Retry, match="has no unique key on id"):
            opened(JdbcSink(), database.configs(key="id", insertMode="UPSERT"))
        database.server.execute("DROP TABLE t", "CREATE TABLE t (id integer) ENGINE=MyISAM")
        with pytest.raises(Retry, match="engine without transactions"):
            opened(JdbcSink(), database.configs(), DirectContext(is_exact=True))
    else:
        sink = opened(JdbcSink(), database.configs(key="id", insertMode="UPSERT"))
        with pytest.raises(Retry, match="ON CONFLICT"):
            sink.write_batch([record(id=1, text="a")])
    sink = opened(JdbcSink(), database.configs())
    database.server.execute("DROP TABLE t")
    with pytest.raises(Retry, match=r"\bt\b"):
        sink.write_batch([record(id=1)])


def test_deferred_constraint_refuses_the_row_at_fault(database: Database, opened: Opened) -> None:
    if database.kind != "postgres":
        pytest.skip("only PostgreSQL has them")
    database.server.execute("CREATE TABLE t (id integer UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    sink = opened(JdbcSink(), database.configs())
    records = [record(id=number % 9) for number in range(10)]
    assert [one for one, _ in write_all(sink, records)] == [records[9]]
    assert len(rows_of(database, "id")) == 9


def test_odd_names_are_quoted(database: Database, opened: Opened) -> None:
    mark = "`" if database.kind == "mariadb" else '"'
    name = 'a%b "c" `d`'
    quoted = mark + name.replace(mark, mark * 2) + mark
    database.server.execute(f"CREATE TABLE t (id integer PRIMARY KEY, {quoted} varchar(20))")
    sink = opened(JdbcSink(), database.configs(key="id", insertMode="UPSERT"))
    for text in ("one", "two"):
        assert write_all(sink, [Record(json.dumps({"id": 1, name: text}))]) == []
    assert database.server.execute(f"SELECT {quoted} FROM t")[0][0] == "two"
