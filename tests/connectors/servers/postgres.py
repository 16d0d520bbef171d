"""A PostgreSQL server with logical replication."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from .base import RealServer


def _program(name: str) -> str:
    """Return the path of a server program, which on Debian depends on the version."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name) or name


class Postgres(RealServer):
    """A PostgreSQL whose user ``postgres`` needs no password; ``app`` has the password ``secret``."""

    binary = _program("postgres")
    package = "apt-get install postgresql"
    user = "postgres"
    database: ClassVar[str] = "postgres"

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def prepare(self) -> None:
        """Override `RealServer.prepare`."""
        initdb = _program("initdb")
        self.run(
            initdb, "-D", str(self._data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"
        )
        rules = ["local all all trust", "host all app 127.0.0.1/32 scram-sha-256", "host all all 127.0.0.1/32 trust"]
        rules.append("host replication all 127.0.0.1/32 trust")
        (self._data / "pg_hba.conf").write_text("\n".join(rules) + "\n")

    def command(self) -> Sequence[str]:
        """Override `RealServer.command`."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.directory),
            "wal_level": "logical",
            "max_wal_senders": "10",
            "max_replication_slots": "20",
            "wal_sender_timeout": "5s",
        }
        return [_program("postgres"), "-D", str(self._data), *(f"-c{key}={text}" for key, text in settings.items())]

    def is_ready(self) -> bool:
        """Override `RealServer.is_ready`."""
        self.execute("SELECT 1")
        return True

    @property
    def conninfo(self) -> str:
        """Connection string for psycopg."""
        return f"host=127.0.0.1 port={self.port} user=postgres dbname={self.database} connect_timeout=5"

    @property
    def jdbc_url(self) -> str:
        """URL in the form of Pulsar's connector."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{self.database}"

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in separate transactions and return the rows of the last one."""
        import psycopg

        rows: list[tuple[Any, ...]] = []
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
                rows = cursor.fetchall() if cursor.description else []
        return rows
