"""The source ``postgres-cdc`` on a PostgreSQL: what becomes of rows and their changes, and of the slot."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from magnetar.api.connector import Record, Retry
from magnetar.api.connector_config import read_config
from magnetar.connectors.jdbc_sink import JdbcSink
from magnetar.connectors.pgoutput import lsn_of
from magnetar.connectors.postgres_cdc_source import PostgresCdcSource

from tests.connectors.connector_kit import Opened, opened, write_all
from tests.connectors.direct import DirectContext
from tests.connectors.servers.postgres import Postgres
from tests.support.waiting import wait_for

__all__ = ["opened"]
pytestmark = pytest.mark.connectors


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres.running() as server:
        yield server


class Source:
    """A source on tables of its own, as an instance reads it; everything read is durable at once."""

    def __init__(self, postgres: Postgres, opened: Opened) -> None:
        self.postgres = postgres
        self._opened = opened
        self.it: Any = None
        self.position: Any = None

    def configs(self, **more: object) -> dict[str, object]:
        return {
            "host": "127.0.0.1", "port": self.postgres.port, "user": "postgres", "database": "postgres",
            "slot": "s", "publication": "p", **more,
        }  # fmt: skip

    def open(self, **more: object) -> None:
        """Open one that stands where the last one stood."""
        self.it = self._opened(PostgresCdcSource(), self.configs(**more), DirectContext(position=self.position))

    def read(self) -> list[Record]:
        records = self.it.read() or []
        for record in records:
            record.acknowledge()
        if records:
            self.position = json.loads(json.dumps(self.it.snapshot()))
        return list(records)

    def changes(self, count: int) -> list[dict[str, Any]]:
        """Return so many changes, and fail if there are more."""
        found: list[dict[str, Any]] = []

        def all_there() -> bool:
            found.extend(json.loads(record.value) for record in self.read())
            return len(found) >= count

        wait_for(all_there, f"{count} changes")
        assert len(found) == count, found
        return found


@pytest.fixture
def source(postgres: Postgres, opened: Opened) -> Iterator[Source]:
    it = Source(postgres, opened)
    yield it
    if it.it is not None:
        it.it.close()
    postgres.execute(
        "DROP TABLE IF EXISTS t, other", "DROP PUBLICATION IF EXISTS p",
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active",
    )  # fmt: skip
    wait_for(
        lambda: postgres.execute("SELECT count(*) FROM pg_replication_slots WHERE active") == [(0,)], "inactive slots"
    )
    postgres.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


def read_until(read: Callable[[], list[Record] | None], count: int) -> list[Record]:
    records: list[Record] = []

    def all_there() -> bool:
        records.extend(read() or [])
        return len(records) >= count

    wait_for(all_there, f"{count} records")
    return records


def parts(changes: list[dict[str, Any]]) -> list[tuple[str, Any, Any]]:
    return [(change["op"], change["before"], change["after"]) for change in changes]


def test_rows_come_first_and_then_their_changes(postgres: Postgres, source: Source) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    source.open(tables="public.t")
    assert parts(source.changes(2)) == [("r", None, {"id": 1, "v": "a"}), ("r", None, {"id": 2, "v": "b"})]
    postgres.execute(
        "INSERT INTO t VALUES (3, NULL)", "UPDATE t SET v = 'c' WHERE id = 1", "UPDATE t SET id = 9 WHERE id = 2",
        "DELETE FROM t WHERE id = 9", "TRUNCATE t",
    )  # fmt: skip
    assert parts(source.changes(6)) == [
        ("c", None, {"id": 3, "v": None}),
        ("u", None, {"id": 1, "v": "c"}),
        ("d", {"id": 2}, None),
        ("c", None, {"id": 9, "v": "b"}),
        ("d", {"id": 9}, None),
        ("t", None, None),
    ]


def test_rows_written_during_the_snapshot_are_there_once(postgres: Postgres, source: Source) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 5000)")
    source.open()
    first = [json.loads(record.value)["after"]["id"] for record in source.read()]
    postgres.execute("INSERT INTO t SELECT generate_series(5001, 6000)")
    rest = [change["after"]["id"] for change in source.changes(6000 - len(first))]
    assert first + rest == list(range(1, 6001))


def test_interrupted_snapshot_begins_anew_and_ends_as_the_table_is(postgres: Postgres, source: Source) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 3000)")
    source.open()
    changes = [json.loads(record.value) for record in source.read()]
    assert source.position is None
    assert {"id": 5} in [change["after"] for change in changes]
    source.it.close()
    postgres.execute("INSERT INTO t VALUES (3001)", "DELETE FROM t WHERE id = 5")
    source.open()
    changes += source.changes(3000 + 2)
    postgres.execute("INSERT INTO t VALUES (3002)")
    changes += source.changes(1)
    there: set[int] = set()
    for change in changes:
        if change["op"] == "d":
            there.discard(change["before"]["id"])
        else:
            there.add(change["after"]["id"])
    assert there == {number for number in range(1, 3003) if number != 5}


def test_values_that_are_stored_out_of_line(postgres: Postgres, source: Source) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY, n integer, big text)")
    postgres.execute("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    source.open(**{"snapshot.mode": "never"})
    postgres.execute("INSERT INTO t VALUES (1, 1, repeat('x', 100000))", "UPDATE t SET n = 2")
    inserted, updated = source.changes(2)
    assert len(inserted["after"]["big"]) == 100_000
    assert (updated["after"], updated["unchanged"]) == ({"id": 1, "n": 2}, ["big"])
    postgres.execute("ALTER TABLE t REPLICA IDENTITY FULL", "UPDATE t SET n = 3")
    (full,) = source.changes(1)
    assert full["before"]["n"] == 2
    assert len(full["after"]["big"]) == 100_000


@pytest.fixture
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.connectors.postgres_tables.LOOK_S", 0.0)


def test_table_that_an_update_adds_is_read_with_its_rows(postgres: Postgres, source: Source) -> None:
    postgres.execute(
        "CREATE TABLE t (id integer PRIMARY KEY)", "INSERT INTO t VALUES (1)",
        "CREATE TABLE other (id integer PRIMARY KEY)", "INSERT INTO other SELECT generate_series(1, 2500)",
    )  # fmt: skip
    source.open(tables="public.t")
    assert [change["after"]["id"] for change in source.changes(1)] == [1]
    source.it.close()
    source.position.pop("tables")  # as earlier versions kept it
    source.open(tables="public.t,public.other")
    rows = source.changes(2500)
    assert {(change["op"], change["table"]) for change in rows} == {("r", "public.other")}
    assert [change["after"]["id"] for change in rows] == list(range(1, 2501))
    postgres.execute("INSERT INTO other VALUES (9999)", "INSERT INTO t VALUES (2)")
    assert [(change["op"], change["table"]) for change in source.changes(2)] == [
        ("c", "public.other"), ("c", "public.t"),
    ]  # fmt: skip
    source.it.close()
    source.open(tables="public.t,public.other")
    postgres.execute("INSERT INTO t VALUES (3)")
    assert parts(source.changes(1)) == [("c", None, {"id": 3})]  # the rows do not come again


def test_table_that_is_created_later_joins_with_its_rows(
    postgres: Postgres, source: Source, looks_at_once: None
) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    source.open(tables=r"public\..*")
    source.changes(1)
    assert source.read() == []
    postgres.execute("CREATE TABLE other (id integer PRIMARY KEY, v text)", "INSERT INTO other VALUES (1, 'a')")
    assert parts(source.changes(1)) == [("r", None, {"id": 1, "v": "a"})]
    postgres.execute(
        "UPDATE other SET v = 'b'", "DROP TABLE other", "CREATE TABLE other (id integer PRIMARY KEY, w text)"
    )
    postgres.execute("INSERT INTO other VALUES (2, 'c')")
    assert parts(source.changes(2)) == [("u", None, {"id": 1, "v": "b"}), ("r", None, {"id": 2, "w": "c"})]


def test_rows_of_transactions_that_run_while_a_table_joins_are_all_there(
    postgres: Postgres, source: Source, looks_at_once: None
) -> None:
    import psycopg

    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY)", "CREATE TABLE other (id integer PRIMARY KEY)")
    postgres.execute("INSERT INTO t VALUES (1)")
    source.open(tables="public.t")
    source.changes(1)
    source.it.close()
    with psycopg.connect(postgres.conninfo) as running:
        running.execute("INSERT INTO other VALUES (1)")  # before the table is in the publication
        source.open(tables="public.(t|other)")
        assert source.read() == []
        running.execute("INSERT INTO other VALUES (2)")
        postgres.execute("INSERT INTO other VALUES (3)", "INSERT INTO t VALUES (2)")
        assert {change["table"] for change in source.changes(2)} == {"public.t", "public.other"}  # t does not wait
        running.commit()
    ids: set[int] = set()

    def all_there() -> bool:
        ids.update(json.loads(record.value)["after"]["id"] for record in source.read())
        return ids >= {1, 2, 3}

    wait_for(all_there, "the rows of the transaction")


def test_rows_that_were_not_all_durable_come_again(postgres: Postgres, source: Source, looks_at_once: None) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    source.open(tables=r"public\..*")
    source.changes(1)
    postgres.execute("CREATE TABLE other (id integer PRIMARY KEY)", "INSERT INTO other SELECT generate_series(1, 1500)")
    assert len(read_until(source.read, 1000)) == 1000
    source.it.close()
    source.open(tables=r"public\..*")
    assert [change["after"]["id"] for change in source.changes(1500)] == list(range(1, 1501))


def test_tables_that_cannot_be_added_are_named_and_others_are_read(
    postgres: Postgres, source: Source, looks_at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY)", "CREATE TABLE other (id integer)")
    postgres.execute("INSERT INTO t VALUES (1)")
    source.open(tables="public.t")
    source.changes(1)
    source.it.close()
    source.open(tables=r"public\..*")
    postgres.execute("INSERT INTO t VALUES (2)", "INSERT INTO other VALUES (1)", "DELETE FROM other")
    assert len(source.changes(1)) == 1
    assert "add a primary key or REPLICA IDENTITY" in caplog.text
    source.it.close()
    postgres.execute("ALTER TABLE other ADD PRIMARY KEY (id)", "INSERT INTO other VALUES (2)")
    source.open(tables=r"public\..*")
    assert parts(source.changes(1)) == [("r", None, {"id": 2})]


def test_publication_of_others_is_not_changed(
    postgres: Postgres, source: Source, looks_at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY)", "CREATE TABLE other (id integer PRIMARY KEY)")
    postgres.execute("CREATE PUBLICATION p FOR TABLE t", "CREATE ROLE reader LOGIN REPLICATION")
    try:
        source.open(tables=r"public\..*", user="reader", **{"snapshot.mode": "never"})
        postgres.execute("INSERT INTO t VALUES (1)")
        assert len(source.changes(1)) == 1
        assert 'run ALTER PUBLICATION "p" ADD TABLE "public"."other"' in caplog.text
        assert caplog.text.count("in the include list but not in") == 1
        assert postgres.execute("SELECT tablename FROM pg_publication_tables") == [("t",)]
    finally:
        source.it.close()
        postgres.execute("DROP ROLE reader")


def test_rows_without_the_right_to_read_them_do_not_stop_the_others(
    postgres: Postgres, source: Source, looks_at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY)", "CREATE PUBLICATION p FOR ALL TABLES")
    postgres.execute("CREATE ROLE reader LOGIN REPLICATION", "GRANT SELECT ON t TO reader", "INSERT INTO t VALUES (1)")
    try:
        source.open(tables=r"public\..*", user="reader")
        assert len(source.changes(1)) == 1
        postgres.execute("CREATE TABLE other (id integer PRIMARY KEY)", "INSERT INTO other VALUES (5)")
        assert parts(source.changes(1)) == [("c", None, {"id": 5})]
        postgres.execute("INSERT INTO t VALUES (2)")
        assert parts(source.changes(1)) == [("c", None, {"id": 2})]
        assert "grant SELECT" in caplog.text
    finally:
        source.it.close()
        postgres.execute("DROP OWNED BY reader", "DROP ROLE reader")


def test_columns_that_change_in_mid_stream(postgres: Postgres, source: Source) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY, v text)")
    source.open()
    assert source.read() == []
    postgres.execute(
        "INSERT INTO t VALUES (1, 'a')", "ALTER TABLE t ADD w numeric DEFAULT 1.50", "INSERT INTO t VALUES (2, 'b')",
        "ALTER TABLE t DROP v", "ALTER TABLE t RENAME w TO x", "INSERT INTO t VALUES (3, 2)",
    )  # fmt: skip
    assert [change["after"] for change in source.changes(3)] == [
        {"id": 1, "v": "a"}, {"id": 2, "v": "b", "w": "1.50"}, {"id": 3, "x": "2"}
    ]  # fmt: skip


def test_what_was_durable_does_not_come_again(postgres: Postgres, source: Source) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY)")
    source.open(**{"snapshot.mode": "never"})
    postgres.execute("INSERT INTO t SELECT generate_series(1, 2500)")  # one transaction, several reads
    seen = [json.loads(record.value)["after"]["id"] for record in source.read()]
    assert 0 < len(seen) < 2500
    source.it.close()
    source.open(**{"snapshot.mode": "never"})
    seen += [change["after"]["id"] for change in source.changes(2500 - len(seen))]
    assert seen == list(range(1, 2501))


def test_big_transaction_and_a_server_that_dies(postgres: Postgres, source: Source) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY, v text)")
    source.open(**{"snapshot.mode": "never"})
    postgres.execute("INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(1, 30000) g")
    seen = [json.loads(record.value)["after"]["id"] for record in source.read()]
    postgres.kill()
    more = (json.loads(record.value)["after"]["id"] for _ in range(1000) for record in source.read())
    with pytest.raises(Retry):
        seen.extend(more)
    source.it.close()
    postgres.start()
    config, context = source.it._config, DirectContext(position=source.position)
    wait_for(lambda: source.it.open(config, context) is None, "the source's opening")  # the same object goes on
    while len(seen) < 30000:
        seen += [json.loads(record.value)["after"]["id"] for record in source.read()]
    assert seen == list(range(1, 30001))


def test_slot_follows_what_is_durable_and_nothing_else(postgres: Postgres, source: Source) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY)", "CREATE TABLE other (id integer)")
    source.open(**{"snapshot.mode": "never", "tables": "public.t"})
    confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 's'"

    def lsn_now() -> int:
        return lsn_of(postgres.execute("SELECT pg_current_wal_lsn()::text")[0][0])

    postgres.execute("INSERT INTO t VALUES (1)")
    records = read_until(source.it.read, 1)
    written = lsn_now()
    until_s = time.monotonic() + 3  # longer than between two answers to the server
    while time.monotonic() < until_s:
        assert not source.it.read()
    assert lsn_of(postgres.execute(confirmed)[0][0]) < written
    for record in records:
        assert record.acknowledge is not None
        record.acknowledge()
    postgres.execute("INSERT INTO other SELECT generate_series(1, 1000)")
    behind = lsn_now()

    def follows() -> bool:
        assert not source.it.read()
        return lsn_of(postgres.execute(confirmed)[0][0]) >= behind

    wait_for(follows, "a slot that follows the log of other tables")


def test_slot_that_somebody_dropped_is_named_with_the_remedy(postgres: Postgres, source: Source) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    source.open()
    source.changes(1)
    source.it.close()

    def dropped() -> bool:
        postgres.execute("SELECT pg_drop_replication_slot('s')")
        return True

    wait_for(dropped, "the end of the slot")
    with pytest.raises(
        Retry, match=r"replication slot 's' no longer exists, and changes since .*snapshot.mode to when_needed"
    ):
        source.open()
    source.open(**{"snapshot.mode": "when_needed"})
    assert parts(source.changes(1)) == [("r", None, {"id": 1})]


def test_slot_has_one_reader(postgres: Postgres, source: Source, opened: Opened) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY)")
    source.open(**{"snapshot.mode": "never"})
    with pytest.raises(Retry, match='replication slot "s" is active for PID'):
        opened(PostgresCdcSource(), source.configs(**{"snapshot.mode": "never"}))


def test_what_is_effectively_once_and_how_many_may_read(source: Source) -> None:
    it = PostgresCdcSource()

    def why_not(**more: object) -> str:
        return it.not_effectively_once(read_config(it.config, source.configs(**more)))

    assert "snapshot.mode" in why_not()
    assert "messages" in why_not(**{"snapshot.mode": "never", "messages": True})
    assert why_not(**{"snapshot.mode": "never"}) == ""
    assert it.not_parallel(read_config(it.config, source.configs())) == "a replication slot supports only one reader"


def test_message_of_an_application_is_a_record_if_wanted(postgres: Postgres, source: Source) -> None:
    postgres.execute("CREATE TABLE t (id integer PRIMARY KEY)")
    source.open(**{"snapshot.mode": "never", "messages": True})
    postgres.execute("SELECT pg_logical_emit_message(true, 'app', 'hello')")
    (change,) = source.changes(1)
    assert (change["op"], change["message"]["prefix"]) == ("m", "app")


def test_all_types_go_through_to_another_table(postgres: Postgres, source: Source, opened: Opened) -> None:
    columns = (
        "id bigint PRIMARY KEY, flag boolean, small smallint, amount numeric(30,10), r real, double double precision,"
        " text text, padded char(5), raw bytea, day date, at timestamp, atz timestamptz(3), span interval, u uuid,"
        ' j json, jb jsonb, list integer[], ip inet, bits bit(3), mood text COLLATE "C"'
    )
    postgres.execute(f"CREATE TABLE t ({columns})", f"CREATE TABLE other ({columns})")
    values = [
        "(1, true, -5, 12345678901234567890.0123456789, 1.5, 1e300, E'ä\"\\\\\\n', 'ab', '\\x00ff', '2024-02-29',"
        " '2024-02-29 01:02:03.123456', '2024-02-29 01:02:03.123+02', '1 day 02:00', gen_random_uuid(),"
        " '{\"a\":1.5}', '[1, null]', '{1,NULL,3}', '10.0.0.1/8', B'101', 'x')",
        "(2)",
        "(3, false, 0, 'NaN', 'NaN', '-Infinity', '', '', '', '0044-03-15 BC', 'infinity', 'infinity', '0', NULL,"
        " '5', '\"t\"', '{}', '::1', B'000', '')",
    ]
    target = f"postgresql://postgres@127.0.0.1:{postgres.port}/postgres"
    sink = opened(
        JdbcSink(), {"jdbcUrl": target, "tableName": "other", "key": "id", "insertMode": "UPSERT", "envelope": "change"}
    )
    postgres.execute(f"INSERT INTO t VALUES {values[0]}")
    source.open(tables="public.t")
    records = read_until(source.read, 1)
    postgres.execute(
        f"INSERT INTO t VALUES {values[1]}", f"INSERT INTO t VALUES {values[2]}",
        "UPDATE t SET text = 'new', list = '{{1,2},{3,4}}' WHERE id = 1", "UPDATE t SET id = 4 WHERE id = 2",
    )  # fmt: skip
    records += read_until(source.read, 5)
    assert write_all(sink, records) == []
    assert postgres.execute("SELECT t::text FROM other t ORDER BY id") == postgres.execute(
        "SELECT t::text FROM t ORDER BY id"
    )


def test_values_stored_out_of_line_stay_in_another_table(postgres: Postgres, source: Source, opened: Opened) -> None:
    columns = "id integer PRIMARY KEY, n integer CHECK (n < 100), big text NOT NULL"
    postgres.execute(f"CREATE TABLE t ({columns})", f"CREATE TABLE other ({columns.replace('100', '50')})")
    postgres.execute("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    target = f"postgresql://postgres@127.0.0.1:{postgres.port}/postgres"
    sink = opened(
        JdbcSink(), {"jdbcUrl": target, "tableName": "other", "key": "id", "insertMode": "UPSERT", "envelope": "change"}
    )
    source.open(tables="public.t", **{"snapshot.mode": "never"})
    postgres.execute(
        "INSERT INTO t SELECT g, g, repeat(g::text, 100000) FROM generate_series(1, 3) g",
        "UPDATE t SET n = 10 WHERE id = 1", "UPDATE t SET id = 4, n = 20 WHERE id = 2",
        "UPDATE t SET id = 5, n = 99 WHERE id = 3",
    )  # fmt: skip
    refused = write_all(sink, read_until(source.read, 3 + 1 + 2 + 2))
    assert len(refused) == 1  # 99 is too large there, and the row stays under its old key
    rows = postgres.execute("SELECT id, n, left(big, 1), length(big) FROM other ORDER BY id")
    assert rows == [(1, 10, "1", 100_000), (3, 3, "3", 100_000), (4, 20, "2", 100_000)]
