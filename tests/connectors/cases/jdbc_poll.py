"""The source ``jdbc-poll`` on PostgreSQL, MariaDB and SQLite."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from typing import Any, ClassVar

import pulsar

from tests.connectors.servers.mariadb import MariaDb
from tests.connectors.servers.postgres import Postgres

from .base import SourceCase


class _JdbcPollCase(SourceCase):
    def configs(self) -> dict[str, object]:
        return {"tableName": "polled", "incrementingColumn": "number", "keyColumn": "id", "pollIntervalMs": 100}

    def identify(self, message: pulsar.Message) -> tuple[int, str]:
        row = json.loads(message.data())
        assert message.partition_key() == str(row["id"])
        assert row["nothing"] is None
        return row["id"], row["text"]


class JdbcPollPostgresCase(_JdbcPollCase):
    connector = "jdbc-poll"
    server = Postgres
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = [
        ({"jdbcUrl": None}, "jdbcUrl is missing"),
        ({"jdbcUrl": "jdbc:postgresql://h"}, "expected a host and a database"),
        ({"tableName": None}, "set either tableName or query"),
        ({"incrementingColumn": None}, "set incrementingColumn or timestampColumn"),
        (
            {"incrementingColumn": None, "timestampColumn": "at"},
            "timestampColumn without incrementingColumn requires delayMs",
        ),
        ({"tableName": "nowhere"}, 'relation "nowhere" does not exist'),
        ({"incrementingColumn": "nowhere"}, 'column "nowhere" does not exist'),
        ({"keyColumn": "nowhere"}, "column 'nowhere' does not exist: expected one of number, id, text, nothing"),
    ]

    def prepare(self) -> None:
        self.server_process.execute(
            "DROP TABLE IF EXISTS polled",
            "CREATE TABLE polled (number serial PRIMARY KEY, id integer, text text, nothing text)",
        )

    def configs(self) -> dict[str, object]:
        return super().configs() | {"jdbcUrl": self.server_process.jdbc_url, "userName": "postgres"}

    def feed(self, records: list[tuple[int, str]]) -> None:
        import psycopg

        with psycopg.connect(self.server_process.conninfo) as connection, connection.cursor() as cursor:
            cursor.executemany("INSERT INTO polled (id, text) VALUES (%s, %s)", records)


class JdbcPollMariaDbCase(_JdbcPollCase):
    connector = "jdbc-poll"
    server = MariaDb

    def prepare(self) -> None:
        columns = "number integer AUTO_INCREMENT PRIMARY KEY, id integer, text longtext, nothing text"
        self.server_process.execute("DROP TABLE IF EXISTS polled", f"CREATE TABLE polled ({columns})")

    def configs(self) -> dict[str, object]:
        return super().configs() | {"jdbcUrl": self.server_process.jdbc_url, "userName": "root"}

    def feed(self, records: list[tuple[int, str]]) -> None:
        with self.server_process.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"USE {self.server_process.database}")
            cursor.execute("BEGIN")
            cursor.executemany("INSERT INTO polled (id, text) VALUES (%s, %s)", records)
            cursor.execute("COMMIT")


class JdbcPollSqliteCase(_JdbcPollCase):
    connector = "jdbc-poll"

    def prepare(self) -> None:
        with contextlib.closing(sqlite3.connect(self.directory / "rows.db")) as connection:
            connection.execute("DROP TABLE IF EXISTS polled")
            connection.execute("PRAGMA journal_mode = wal")
            connection.execute(
                'CREATE TABLE polled (number integer PRIMARY KEY, id integer, text text, "nothing" text)'
            )

    def configs(self) -> dict[str, object]:
        return super().configs() | {"jdbcUrl": f"jdbc:sqlite:{self.directory / 'rows.db'}"}

    def feed(self, records: list[tuple[int, str]]) -> None:
        with contextlib.closing(sqlite3.connect(self.directory / "rows.db", timeout=30)) as connection, connection:
            connection.executemany("INSERT INTO polled (id, text) VALUES (?, ?)", records)
