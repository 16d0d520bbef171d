"""The ``jdbc`` sink compared with a plain ``executemany`` of the same driver: same rows, batches and transactions."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pulsar

from tests.connectors.servers.mariadb import MariaDb
from tests.connectors.servers.postgres import Postgres
from tests.support.command import call
from tests.support.servers import Server
from tests.support.waiting import wait_for

from .figure import Figure, median_of
from .plan import Plan

BATCH = 1000
KEPT_PERCENT = 60
ROWS_PER_SECOND_OF_PLAN = 50_000
COLUMNS = ("id", "customer", "amount", "is_paid")
Row = tuple[int, str, float, bool]


class Target(Protocol):
    """A target database; ``name`` of the driver, ``user`` of the sink, ``mark`` for parameters."""

    name: str
    user: str
    mark: str

    @property
    def jdbc_url(self) -> str:
        """Return the URL for the sink."""

    def connect(self) -> Any:
        """Return a driver connection without autocommit."""


@dataclass
class _Postgres:
    server: Postgres
    name = "psycopg, PostgreSQL"
    user = "postgres"
    mark = "%s"

    @property
    def jdbc_url(self) -> str:
        return self.server.jdbc_url

    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(self.server.conninfo)


@dataclass
class _MariaDb:
    server: MariaDb
    name = "PyMySQL, MariaDB"
    user = "root"
    mark = "%s"

    @property
    def jdbc_url(self) -> str:
        return self.server.jdbc_url

    def connect(self) -> Any:
        connection = self.server.connect()
        connection.autocommit(False)
        connection.select_db(self.server.database)
        return connection


@dataclass
class _Sqlite:
    path: Path
    name = "sqlite3, SQLite"
    user = ""
    mark = "?"

    @property
    def jdbc_url(self) -> str:
        return f"jdbc:sqlite:{self.path}"

    def connect(self) -> Any:
        return sqlite3.connect(self.path, timeout=30)


def measure_jdbc(plan: Plan) -> Iterator[Figure]:
    """Measure rows per second of the sink from a filled topic, and of ``executemany`` from memory."""
    count = int(ROWS_PER_SECOND_OF_PLAN * plan.seconds)
    rows = [(number, f"customer {number % 1000}", number / 8, number % 3 == 0) for number in range(count)]
    with plan.server("standalone") as server:
        _send(server, rows)
        with Postgres.running() as postgres:
            yield _measure(plan, server, _Postgres(postgres), rows)
        with MariaDb.running() as mariadb:
            yield _measure(plan, server, _MariaDb(mariadb), rows)
        with tempfile.TemporaryDirectory(dir=plan.directory) as directory:
            yield _measure(plan, server, _Sqlite(Path(directory) / "rows.db"), rows)


def _measure(plan: Plan, server: Server, target: Target, rows: Sequence[Row]) -> Figure:
    bare = median_of(plan.repeats, lambda: _executemany(target, rows))
    ours = median_of(plan.repeats, lambda: _sink(server, target, len(rows)))
    return Figure(
        name=f"sink jdbc, {target.name}, {BATCH} rows of 4 columns in a transaction",
        ours=ours,
        unit="rows/s",
        peer=bare,
        peer_name="executemany",
        target=bare * KEPT_PERCENT / 100,
        note=f"{ours / bare:.0%} of a bare executemany",
    )


def _send(server: Server, rows: Sequence[Row]) -> None:
    """Publish the rows to the topic with the official client."""
    client = pulsar.Client(server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        "rows", batching_enabled=True, batching_max_messages=BATCH, block_if_queue_full=True
    )
    for row in rows:
        producer.send_async(json.dumps(dict(zip(COLUMNS, row, strict=True))).encode(), lambda *_: None)
    producer.flush()
    client.close()


def _table(target: Target) -> None:
    with contextlib.closing(target.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("DROP TABLE IF EXISTS bench")
        cursor.execute(
            "CREATE TABLE bench"
            " (id integer PRIMARY KEY, customer varchar(40), amount double precision, is_paid boolean)"
        )
        connection.commit()


def _executemany(target: Target, rows: Sequence[Row]) -> float:
    _table(target)
    statement = f"INSERT INTO bench (id, customer, amount, is_paid) VALUES ({', '.join([target.mark] * 4)})"
    with contextlib.closing(target.connect()) as connection:
        cursor = connection.cursor()
        began_s = time.perf_counter()
        for begin in range(0, len(rows), BATCH):
            cursor.executemany(statement, rows[begin : begin + BATCH])
            connection.commit()
        return len(rows) / (time.perf_counter() - began_s)


def _sink(server: Server, target: Target, count: int) -> float:
    """Return the rate from the first to the last rows in the database."""
    _table(target)
    configs = {"jdbcUrl": target.jdbc_url, "userName": target.user, "tableName": "bench", "batchSize": BATCH}

    def command(*arguments: str) -> None:
        call(*arguments, admin_url=server.web_url, service_url=server.service_url).ok()

    command(
        "sinks", "create", "--name", "bench", "--sink-type", "jdbc", "--inputs", "rows", "--subs-position", "Earliest",
        "--sink-config", json.dumps(configs),
    )  # fmt: skip
    try:
        with contextlib.closing(target.connect()) as connection:

            def written() -> int:
                cursor = connection.cursor()
                cursor.execute("SELECT max(id) FROM bench")
                (largest,) = cursor.fetchone()
                connection.commit()
                return 0 if largest is None else int(largest) + 1

            first = wait_for(written, "rows")
            began_s = time.perf_counter()
            wait_for(lambda: written() == count, "all rows", 120)
            return (count - first) / (time.perf_counter() - began_s)
    finally:
        command("sinks", "delete", "--name", "bench")
