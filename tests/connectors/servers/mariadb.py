"""A MariaDB server."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .base import RealServer


def _program(name: str) -> str:
    return shutil.which(name) or next((str(at) for at in (Path("/usr/sbin") / name,) if at.exists()), name)


class MariaDb(RealServer):
    """A MariaDB with the database ``test``, whose user ``root`` needs no password."""

    binary = _program("mariadbd")
    package = "apt-get install mariadb-server"
    user = "mysql"
    database: ClassVar[str] = "test"

    def prepare(self) -> None:
        """Override `RealServer.prepare`."""
        self._temporary.mkdir()
        self.own(self._temporary)
        install = _program("mariadb-install-db")
        flags = ["--no-defaults", f"--datadir={self.directory / 'data'}", "--auth-root-authentication-method=normal"]
        self.run(install, *flags, "--skip-test-db")

    @property
    def _temporary(self) -> Path:
        return self.directory / "tmp"

    def environment(self) -> Mapping[str, str]:
        """Override `RealServer.environment`. A server that starts removes temporary tables of others in its folder."""
        return {"TMPDIR": str(self._temporary)}

    def command(self) -> Sequence[str]:
        """Override `RealServer.command`."""
        return [
            _program("mariadbd"),
            "--no-defaults",
            f"--datadir={self.directory / 'data'}",
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            f"--socket={self.directory / 's.sock'}",
            f"--pid-file={self.directory / 'mariadb.pid'}",
            "--character-set-server=utf8mb4",
            "--innodb-buffer-pool-size=64M",
        ]

    def is_ready(self) -> bool:
        """Override `RealServer.is_ready`."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {self.database}")
        return True

    @property
    def jdbc_url(self) -> str:
        """URL in the form of Pulsar's connector."""
        return f"jdbc:mariadb://127.0.0.1:{self.port}/{self.database}"

    def execute(self, *statements: str) -> Sequence[tuple[Any, ...]]:
        """Run statements in separate transactions and return the rows of the last one."""
        rows: Sequence[tuple[Any, ...]] = ()
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"USE {self.database}")
            for statement in statements:
                cursor.execute(statement)
                rows = cursor.fetchall()
        return rows

    def connect(self) -> Any:
        """Open a connection in autocommit mode."""
        import pymysql

        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", charset="utf8mb4", autocommit=True)
