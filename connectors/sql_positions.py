"""Write positions of a sink's topics, stored in the target's transactions so that redelivered records are skipped.

A topic's row is locked before records are written. If a frozen instance was replaced and resumes, the later of the two
instances therefore sees the other's writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..api.connector import Record

if TYPE_CHECKING:
    from sqlalchemy import Connection

_REFUSED_MAX = 1000


class Positions:
    """The rows of one sink in the positions table.

    Rejected records are stored so that they are rejected again if redelivered, because they may not have reached the
    dead-letter topic yet.
    """

    def __init__(self, connection: Connection, table: str, sink: str) -> None:
        """Create the table if it does not exist.

        Args:
            connection: an open connection.
            table: table name.
            sink: ID of the sink, which differs for a sink created later under the same name.
        """
        dialect = connection.dialect.name
        self._connection = connection
        self._sink = sink
        self._lock = " FOR UPDATE" if dialect != "sqlite" else ""
        self._mark = "?" if dialect == "sqlite" else "%s"
        is_mysql = dialect in ("mysql", "mariadb")
        # In MariaDB this locks the row exclusively from the start. IGNORE would take a shared lock first, and could
        # deadlock.
        self._conflict = "ON DUPLICATE KEY UPDATE sequence = sequence" if is_mysql else "ON CONFLICT DO NOTHING"
        self._known: set[str] = set()
        mark = "`" if is_mysql else '"'
        self._table = ".".join(mark + part.replace(mark, mark * 2) + mark for part in table.split("."))
        text = "varchar({}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" if is_mysql else "varchar({})"
        end = " ENGINE=InnoDB" if is_mysql else ""
        connection.exec_driver_sql(
            f"CREATE TABLE IF NOT EXISTS {self._table} (sink {text.format(255)} NOT NULL,"
            f" topic {text.format(500)} NOT NULL, sequence bigint NOT NULL, refused text NOT NULL,"
            f" PRIMARY KEY (sink, topic)){end}"
        )

    def written(self, topic: str) -> tuple[int, set[int]]:
        """Lock a topic's row, and return the number of its last written record and the numbers of rejected records."""
        parameters = (self._sink, topic)
        mark = self._mark
        if topic not in self._known:
            self._connection.exec_driver_sql(
                f"INSERT INTO {self._table} (sink, topic, sequence, refused)"
                f" VALUES ({mark}, {mark}, -1, '[]') {self._conflict}",
                parameters,
            )
        sequence, refused = self._connection.exec_driver_sql(
            f"SELECT sequence, refused FROM {self._table} WHERE sink = {mark} AND topic = {mark}{self._lock}",
            parameters,
        ).one()
        return int(sequence), set(json.loads(refused))

    def keep(self, records: Sequence[Record], before: Mapping[str, tuple[int, set[int]]]) -> None:
        """Store that records were written or rejected.

        Args:
            records: the records.
            before: results of `written` by topic, with the numbers of all rejected records added to the sets.
        """
        mark = self._mark
        for topic, sequence in {record.topic: record.sequence for record in records}.items():
            last, refused = before[topic]
            numbers = json.dumps(sorted(refused)[-_REFUSED_MAX:])
            self._connection.exec_driver_sql(
                f"UPDATE {self._table} SET sequence = {mark}, refused = {mark} WHERE sink = {mark} AND topic = {mark}",
                (max(last, sequence), numbers, self._sink, topic),
            )
            self._known.add(topic)
