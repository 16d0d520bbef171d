"""The source ``jdbc-poll``: which rows it finds, on SQLite and on a PostgreSQL."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from magnetar.api.connector import DeadLetter, Record, Retry
from magnetar.connectors.jdbc_poll_source import JdbcPollSource

from tests.connectors.connector_kit import Opened, opened
from tests.connectors.direct import DirectContext
from tests.connectors.servers.postgres import Postgres
from tests.support.waiting import wait_for

pytestmark = pytest.mark.connectors

__all__ = ["opened"]


class Rows:
    """A table of SQLite, and a source of its rows."""

    def __init__(self, path: Path, opened: Opened) -> None:
        self.path = path
        self.opened = opened

    def execute(self, *statements: str) -> None:
        with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    def source(self, position: Any = None, **more: object) -> Any:
        configs = {"url": f"jdbc:sqlite:{self.path}", "pollIntervalMs": 10, **more}
        return self.opened(JdbcPollSource(), configs, DirectContext(position=position))


@pytest.fixture
def rows(tmp_path: Path, opened: Opened) -> Rows:
    return Rows(tmp_path / "rows.db", opened)


def read(source: Any, count: int) -> list[Record]:
    found: list[Record] = []

    def all_there() -> bool:
        found.extend(source.read() or [])
        return len(found) >= count

    wait_for(all_there, f"{count} rows")
    for _ in range(3):
        found.extend(source.read() or [])
    assert len(found) == count
    return found


def ids(records: list[Record]) -> list[int]:
    return [json.loads(record.value)["id"] for record in records]


def test_rows_come_in_batches_and_the_position_is_the_last_one(rows: Rows) -> None:
    rows.execute("CREATE TABLE t (id integer PRIMARY KEY, v text)")
    rows.execute(*(f"INSERT INTO t VALUES ({number}, 'v{number}')" for number in range(10)))
    source = rows.source(table="t", incrementingColumn="id", keyColumn="id", batchSize=4)
    first = source.read()
    assert [(record.key, json.loads(record.value)) for record in first][-1] == ("3", {"id": 3, "v": "v3"})
    position = json.loads(json.dumps(source.snapshot()))
    assert ids(read(source, 6)) == [4, 5, 6, 7, 8, 9]
    again = rows.source(position, table="t", incrementingColumn="id")
    assert ids(read(again, 6)) == [4, 5, 6, 7, 8, 9]
    rows.execute("INSERT INTO t VALUES (11, NULL)")
    assert ids(read(again, 1)) == [11]


def test_changed_rows_come_again_by_their_time(rows: Rows) -> None:
    rows.execute("CREATE TABLE t (id integer PRIMARY KEY, at text)")
    rows.execute("INSERT INTO t VALUES (1, '2024-01-01 00:00:01'), (2, '2024-01-01 00:00:01'), (3, NULL)")
    source = rows.source(table="t", incrementingColumn="id", timestampColumn="at", batchSize=1)
    assert ids(read(source, 2)) == [1, 2]
    rows.execute("UPDATE t SET at = '2024-01-01 00:00:02' WHERE id = 1")
    assert ids(read(source, 1)) == [1]


def test_rows_of_one_moment_come_together(rows: Rows) -> None:
    rows.execute("CREATE TABLE t (id integer, at text)")
    moments = [0, 1, 1, 1, 1, 1, 2, 2, 3]
    rows.execute(*(f"INSERT INTO t VALUES ({place}, '{moment}')" for place, moment in enumerate(moments)))
    source = rows.source(table="t", timestampColumn="at", delayMs=1, batchSize=3)
    assert sorted(ids(read(source, 9))) == list(range(9))


def test_row_that_is_committed_late_comes_in_its_place(rows: Rows) -> None:
    rows.execute("CREATE TABLE t (id integer PRIMARY KEY)", "INSERT INTO t VALUES (1), (3)")
    source = rows.source(table="t", incrementingColumn="id", delayMs=1000)
    assert not source.read()
    rows.execute("INSERT INTO t VALUES (2)")
    assert ids(read(source, 3)) == [1, 2, 3]


def test_query_with_its_own_conditions(rows: Rows) -> None:
    rows.execute("CREATE TABLE t (id integer PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a:b%'), (2, 'x')")
    query = "SELECT id, v || ':c' AS w FROM t WHERE v LIKE 'a:b%' ;"
    source = rows.source(query=query, incrementingColumn="id", keyColumn=["id", "w"])
    (record,) = read(source, 1)
    assert json.loads(record.value) == {"id": 1, "w": "a:b%:c"}
    assert json.loads(record.key or "") == {"id": 1, "w": "a:b%:c"}


def test_opened_anew_it_goes_on(rows: Rows) -> None:
    rows.execute("CREATE TABLE t (id integer PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    source = rows.source(table="t", incrementingColumn="id")
    assert ids(read(source, 1)) == [1]
    rows.execute("DROP TABLE t")
    source._due_s = 0.0
    with pytest.raises(Retry, match="no such table: t"):
        source.read()
    source.close()
    rows.execute("CREATE TABLE t (id integer PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    source.open(source._config, DirectContext(position=source.snapshot()))
    assert ids(read(source, 1)) == [2]


@pytest.mark.slow
def test_types_of_postgres_are_json(opened: Opened) -> None:
    with Postgres.running() as server:
        server.execute(
            "CREATE TABLE t (id numeric PRIMARY KEY, at timestamptz, day date, raw bytea, n numeric, f float8, j json)",
            "INSERT INTO t VALUES (1, '2024-02-29 01:02:03+02', '2024-02-29', '\\x00ff', 1.50, 'NaN', '{\"a\": [1]}')",
            "INSERT INTO t VALUES (2.5, '2024-02-29 01:02:03+02', NULL, NULL, NULL, NULL, NULL)",
        )
        configs = {"url": server.jdbc_url, "userName": "postgres", "table": "public.t", "pollIntervalMs": 10}
        configs |= {"incrementingColumn": "id", "timestampColumn": "at", "batchSize": 1}
        source = opened(JdbcPollSource(), configs)
        (record,) = source.read()
        value = json.loads(record.value)
        assert value.pop("at").startswith("2024-02-2")
        assert value == {
            "id": "1", "day": "2024-02-29", "raw": "AP8=", "n": "1.50", "f": "NaN", "j": {"a": [1]}
        }  # fmt: skip
        again = opened(JdbcPollSource(), configs, DirectContext(position=json.loads(json.dumps(source.snapshot()))))
        assert [json.loads(record.value)["id"] for record in read(again, 1)] == ["2.5"]
        opened.close()


def test_row_that_cannot_be_read_costs_that_row(rows: Rows) -> None:
    rows.execute("CREATE TABLE t (id integer PRIMARY KEY, a, b)")
    rows.execute(*(f"INSERT INTO t VALUES ({number}, 1, 1)" for number in range(20)))
    rows.execute("UPDATE t SET a = -9223372036854775808 WHERE id IN (7, 13)")
    source = rows.source(query="SELECT id, abs(a) AS a FROM t", incrementingColumn="id", batchSize=8)
    found = read(source, 20)
    letters = [record for record in found if isinstance(record, DeadLetter)]
    assert ids(found) == list(range(20))
    assert [json.loads(letter.value) for letter in letters] == [{"id": 7}, {"id": 13}]
    assert "integer overflow" in letters[0].reason


def test_text_of_sqlite_that_is_not_utf8_costs_that_row(rows: Rows) -> None:
    rows.execute("CREATE TABLE t (id integer PRIMARY KEY, v)")
    rows.execute("INSERT INTO t VALUES (1, 'a'), (2, CAST(x'636166e9' AS text)), (3, 'ü'), (4, 9e999)")
    found = read(rows.source(table="t", incrementingColumn="id"), 4)
    assert [json.loads(record.value)["v"] for record in found] == ["a", "caf\udce9", "ü", "Infinity"]
    with pytest.raises(UnicodeEncodeError):  # so that the instance makes a dead letter of it
        found[1].value.encode()


def test_columns_of_a_query_with_the_same_name_are_numbered(rows: Rows) -> None:
    rows.execute("CREATE TABLE t (id integer PRIMARY KEY, v)", "INSERT INTO t VALUES (1, 2)")
    (record,) = read(rows.source(query="SELECT id, v, v + 1 AS v FROM t", incrementingColumn="id"), 1)
    assert sorted(json.loads(record.value).values()) == [1, 2, 3]


HOSTILE_OF_POSTGRES = {
    "at": ["infinity", "-infinity", "0044-03-15 01:02:03 BC", "10000-01-01 00:00:00", "2024-02-29 01:02:03.000001"],
    "zoned": [
        "infinity",
        "-infinity",
        "0044-03-15 01:02:03+00 BC",
        "10000-01-01 00:00:00+00",
        "2024-06-30 23:59:60+00",
    ],
    "day": ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "2024-02-29"],
    "hour": ["24:00", "00:00", "23:59:59.999999", "12:00", "01:02:03"],
    "span": ["1 mon", "1 year 2 mons -3 days +04:05:06", "-1 mons", "30 days", "00:00:01"],
    "n": ["NaN", "Infinity", "-Infinity", "1" * 60 + "." + "2" * 60, "10000000000000000000000000000000000000000"],
    "f": ["NaN", "Infinity", "-Infinity", "-0", "1e308"],
    "j": ['{"a": 1.00000000000000000000000000001}', "[1e400]", '"\\u20ac"', "null", "[" * 300 + "]" * 300],
}


@pytest.mark.slow
@pytest.mark.parametrize("times", [{}, {"timestampColumn": "at"}], ids=["by number", "by time"])
def test_values_of_postgres_are_carried_exactly(opened: Opened, times: dict[str, str]) -> None:
    types = ("timestamp", "timestamptz", "date", "time", "interval", "numeric", "float8", "jsonb")
    with Postgres.running() as server:
        columns = ", ".join(f"{name} {kind}" for name, kind in zip(HOSTILE_OF_POSTGRES, types, strict=True))
        server.execute(f"CREATE TABLE t (id integer PRIMARY KEY, {columns})")
        count = len(HOSTILE_OF_POSTGRES["at"])

        def insert(first: int) -> None:
            for number in range(count):
                values = ", ".join(f"'{given[number]}'" for given in HOSTILE_OF_POSTGRES.values())
                server.execute(f"INSERT INTO t VALUES ({first + number}, {values})")

        insert(0)
        configs = {"url": server.jdbc_url, "userName": "postgres", "table": "t", "pollIntervalMs": 10, **times}
        configs |= {"incrementingColumn": "id", "batchSize": 2}
        source = opened(JdbcPollSource(), configs)
        found = {json.loads(record.value)["id"]: record for record in read(source, count)}
        assert not [record for record in found.values() if isinstance(record, DeadLetter)]
        for number in range(count):
            shown = json.loads(found[number].value, parse_float=str, parse_int=str)
            texts = server.execute(
                "SELECT replace(at::text, ' ', 'T'), day::text, hour::text, span::text, n::text, f::text, j::text"
                f" FROM t WHERE id = {number}"
            )[0]
            assert (shown["at"].replace(" BC", "TBC"), shown["day"]) == texts[:2]
            assert (shown["hour"], shown["span"], shown["n"]) == texts[2:5]
            assert float(shown["f"]) == float(texts[5]) or shown["f"] == "NaN"
            assert texts[6] in found[number].value
        if times:  # rows of an infinite time are not read again, and those of other times are read all the same
            position = json.loads(json.dumps(source.snapshot()))
            source.close()
            source = opened(JdbcPollSource(), configs, DirectContext(position=position))
            server.execute("INSERT INTO t (id, at) VALUES (100, 'infinity'), (101, '20000-01-01'), (102, 'infinity')")
            assert sorted(ids(read(source, 3))) == [100, 101, 102]
        else:
            insert(count)
            assert ids(read(source, count)) == list(range(count, 2 * count))
        opened.close()


@pytest.mark.slow
def test_rows_of_an_infinite_time_are_named_where_nothing_else_orders_them(opened: Opened) -> None:
    with Postgres.running() as server:
        server.execute(
            "CREATE TABLE t (id integer, at timestamptz)",
            "INSERT INTO t VALUES (1, '2024-01-01'), (2, 'infinity'), (3, '0044-01-01 BC'), (4, '12024-01-01')",
        )
        configs = {"url": server.jdbc_url, "userName": "postgres", "table": "t", "pollIntervalMs": 10}
        source = opened(JdbcPollSource(), configs | {"timestampColumn": "at", "delayMs": 1})
        found = read(source, 4)
        (letter,) = [record for record in found if isinstance(record, DeadLetter)]
        assert json.loads(letter.value)["id"] == 2
        assert letter.reason.startswith("at is infinity")
        assert [number for number in ids(found) if number != 2] == [3, 1, 4]
        opened.close()


@pytest.mark.slow
def test_text_of_postgres_that_is_not_utf8_costs_that_row(opened: Opened) -> None:
    with Postgres.running() as server:
        server.execute("CREATE DATABASE bytes ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
        server.database = "bytes"  # type: ignore[misc]
        server.execute(
            "CREATE TABLE t (id integer PRIMARY KEY, v text)",
            "INSERT INTO t VALUES (1, 'a'), (2, E'caf\\xe9'), (3, E'\\xc3\\xbc')",
        )
        configs = {"url": server.jdbc_url, "userName": "postgres", "table": "t", "pollIntervalMs": 10}
        found = read(opened(JdbcPollSource(), configs | {"incrementingColumn": "id"}), 3)
        assert [json.loads(record.value) for record in found] == [{"id": 1, "v": "a"}, {"id": 2}, {"id": 3, "v": "ü"}]
        assert isinstance(found[1], DeadLetter)
        assert 'invalid byte sequence for encoding "UTF8": 0xe9' in found[1].reason
        opened.close()
