"""The source ``postgres-cdc``."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pulsar

from tests.connectors.servers.postgres import Postgres

from .base import SourceCase

SLOT = "conformance"


class PostgresCdcCase(SourceCase):
    connector = "postgres-cdc"
    server = Postgres
    is_ordered = False  # rows of the snapshot come in the order of the table's pages
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = [
        ({"database.hostname": None}, "database.hostname is missing"),
        ({"database.hostnam": "x"}, "did you mean database.hostname?"),
        ({"snapshot.mode": "always"}, "snapshot.mode must be one of initial, never, when_needed"),
        ({"plugin.name": "decoderbufs"}, "plugin.name must be one of pgoutput"),
        ({"slot.name": "Größe"}, "invalid slot.name 'Größe': expected 1 to 63 lower-case letters"),
        ({"table.include.list": "["}, "table.include.list: invalid regular expression '['"),
        ({"table.include.list": "public.nowhere"}, "no table matches table.include.list"),
        ({"database.port": 1}, "retrying"),
        ({"database.user": "app", "database.password": "wrong"}, 'password authentication failed for user "app"'),
    ]

    def prepare(self) -> None:
        server = self.server_process
        server.execute("DROP TABLE IF EXISTS cdc", "DROP PUBLICATION IF EXISTS conformance")
        slots = f"FROM pg_replication_slots WHERE slot_name = '{SLOT}'"
        server.execute(
            f"SELECT pg_terminate_backend(active_pid) {slots} AND active",
            f"SELECT pg_drop_replication_slot(slot_name) {slots}",
            "CREATE TABLE cdc (id integer PRIMARY KEY, text text, nothing text)",
        )

    def configs(self) -> dict[str, object]:
        return {
            "database.hostname": "127.0.0.1",
            "database.port": self.server_process.port,
            "database.user": "postgres",
            "database.dbname": "postgres",
            "table.include.list": "public.cdc",
            "slot.name": SLOT,
            "publication.name": SLOT,
        }

    def feed(self, records: list[tuple[int, str]]) -> None:
        import psycopg

        with psycopg.connect(self.server_process.conninfo, autocommit=True) as connection:
            for begin in range(0, len(records), 500):
                with connection.transaction(), connection.cursor() as cursor:
                    cursor.executemany(
                        "INSERT INTO cdc (id, text) VALUES (%s, %s)", records[begin : begin + 500]
                    )  # fmt: skip

    def identify(self, message: pulsar.Message) -> tuple[int, str]:
        change = json.loads(message.data())
        row = change["after"]
        assert message.partition_key() == str(row["id"])
        assert (change["table"], row["nothing"]) == ("public.cdc", None)
        return row["id"], row["text"]


class PostgresCdcSlotCase(PostgresCdcCase):
    """Changes only, from an existing slot, as with Debezium."""

    connector = "debezium-postgres"
    is_ordered = True
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = []

    def prepare(self) -> None:
        super().prepare()
        self.server_process.execute(
            "CREATE PUBLICATION conformance FOR ALL TABLES",
            f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')",
        )

    def configs(self) -> dict[str, object]:
        return super().configs() | {"snapshot.mode": "never"}


class PostgresCdcExactlyOnceCase(PostgresCdcSlotCase):
    """The same changes, each exactly once."""

    processing_guarantees = "EFFECTIVELY_ONCE"
