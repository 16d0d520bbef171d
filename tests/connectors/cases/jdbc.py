"""The sink ``jdbc`` on PostgreSQL, MariaDB and SQLite."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, ClassVar

from tests.connectors.servers.mariadb import MariaDb
from tests.connectors.servers.postgres import Postgres

from .base import SinkCase

BAD_CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"jdbcUrl": None}, "jdbcUrl is missing"),
    ({"jdbcUrl": "localhost:5432"}, "invalid jdbcUrl 'localhost:5432': expected a database URL"),
    ({"tableName": None}, "tableName is missing"),
    ({"tabelName": "x"}, "did you mean tableName?"),
    ({"tableName": "nowhere"}, "table 'nowhere' does not exist"),
    ({"insertMode": "MERGE"}, "insertMode must be one of INSERT, UPSERT, UPDATE"),
    ({"key": None}, "insertMode UPSERT requires key"),
    ({"batchSize": 0}, "batchSize must be at least 1"),
    ({"jdbcUrl": "jdbc:postgresql://127.0.0.1:1/postgres"}, "retrying"),
    ({"userName": "app", "password": "wrong"}, 'password authentication failed for user "app"'),
]


class _JdbcCase(SinkCase):
    is_exact = True

    def configs(self) -> dict[str, object]:
        return {"jdbcUrl": self.server_process.jdbc_url, "tableName": "t", "key": "id", "insertMode": "UPSERT"}

    def bad_record(self) -> bytes | None:
        return json.dumps({"id": 5, "text": "no column of that name", "nowhere": 1}).encode()

    def read_back(self) -> list[tuple[int, str]]:
        rows = self.server_process.execute("SELECT id, text FROM t")
        return [(number, text) for number, text in rows]


class JdbcPostgresCase(_JdbcCase):
    connector = "jdbc"
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = BAD_CONFIGS
    server = Postgres

    def prepare(self) -> None:
        self.server_process.execute(
            "DROP TABLE IF EXISTS t",
            "CREATE TABLE t (id integer PRIMARY KEY, text text CHECK (text <> 'bad'), nothing text)",
        )

    def configs(self) -> dict[str, object]:
        return super().configs() | {"userName": "postgres"}

    def bad_record(self) -> bytes | None:
        return b'{"id": 1, "text": "bad"}'


class JdbcMariaDbCase(_JdbcCase):
    connector = "jdbc-mariadb"
    server = MariaDb

    def prepare(self) -> None:
        self.server_process.execute(
            "DROP TABLE IF EXISTS t", "CREATE TABLE t (id integer PRIMARY KEY, text longtext, nothing varchar(20))"
        )

    def configs(self) -> dict[str, object]:
        return super().configs() | {"userName": "root"}

    def bad_record(self) -> bytes | None:
        return b'{"id": 1, "text": "kept", "nothing": "more than twenty characters"}'


class JdbcSqliteCase(_JdbcCase):
    connector = "jdbc-sqlite"

    @property
    def _file(self) -> Path:
        return self.directory / "rows.db"

    def configs(self) -> dict[str, object]:
        columns = {"id": "integer", "text": "text", "nothing": "text"}
        base = {"tableName": "t", "key": "id", "insertMode": "UPSERT"}
        return base | {"jdbcUrl": f"jdbc:sqlite:{self._file}", "createTable": columns}

    def read_back(self) -> list[tuple[int, str]]:
        connection = sqlite3.connect(self._file)
        try:
            return connection.execute("SELECT id, text FROM t").fetchall()
        except sqlite3.OperationalError:  # no table yet
            return []
        finally:
            connection.close()


class JdbcExactlyOnceCase(JdbcPostgresCase):
    """Rows without a key: only the positions stored in the target prevent duplicates."""

    processing_guarantees = "EFFECTIVELY_ONCE"
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = []

    def prepare(self) -> None:
        self.server_process.execute(
            "DROP TABLE IF EXISTS t", "CREATE TABLE t (id integer, text text CHECK (text <> 'bad'), nothing text)"
        )

    def configs(self) -> dict[str, object]:
        return super().configs() | {"insertMode": "INSERT", "key": ""}
