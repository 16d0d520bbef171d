"""The source ``jdbc-poll``: which rows it finds, on SQLite and on a PostgreSQL."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from magnetar.api.connector import Record, Retry
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
            "id": "1", "day": "2024-02-29", "raw": "AP8=", "n": "1.50", "f": "nan", "j": {"a": [1]}
        }  # fmt: skip
        again = opened(JdbcPollSource(), configs, DirectContext(position=json.loads(json.dumps(source.snapshot()))))
        assert [json.loads(record.value)["id"] for record in read(again, 1)] == ["2.5"]
        opened.close()
