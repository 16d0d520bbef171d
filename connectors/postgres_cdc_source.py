"""The ``postgres-cdc`` source reads changes of PostgreSQL tables through logical replication.

The server retains its log for a replication slot until the source confirms that the resulting records are durable. No
change is lost in a crash, but changes in flight are resent. The position identifies a change by the LSN at which its
transaction was committed and its number in the transaction. Changes before the position are skipped.

On the first start, the source takes a snapshot: the rows of all tables at the LSN at which the changes start. If the
snapshot is interrupted, it is repeated, followed by all changes since the slot was created, so that the final state of
each key matches the tables.

With an include list, tables that are created later, or added to the list by an update, join within seconds: the source
sends first their rows, then their changes. With ``snapshot.mode`` ``never``, it sends only changes made after the table
joined.

The slot and the publication are created if they do not exist. They remain when the source is deleted, and the server
keeps retaining its log until you drop the slot: ``SELECT pg_drop_replication_slot('…')``.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..api.connector import Record, Retry, Source, SourceContext
from ..api.connector_config import Refusal, Unsupported, option
from ..errors import InvalidConfig
from .pgoutput import Begin, Commit, MalformedMessage, Origin, Relation, Type, decode, lsn_text
from .postgres_changes import ChangeMaker, Envelope, Moment
from .postgres_replication import (
    LogStream,
    RowReader,
    Snapshot,
    check_server,
    command,
    connect,
    create_publication,
    identifier,
    lost_remedy,
    primary_key,
    published_tables,
    slot_position,
)
from .postgres_tables import FollowedTables, existing_tables

if TYPE_CHECKING:
    from psycopg import Connection

RECORDS_AT_ONCE = 1000
BYTES_AT_ONCE = 1 << 20
WAIT_S = 0.5
"""How long `read` waits if no changes are available, in seconds."""
READ_S = 1.0


_NO_HISTORY = Refusal("no history topic is needed, as the server's log describes the columns; remove this option")
_LEFT_OUT = "that exclude tables, such as (?!shop\\.secret$).* to exclude shop.secret"
_UNSUPPORTED: Unsupported = {
    "topic.namespace": Refusal("all changes go to one topic; set topicName, with tenant and namespace"),
    "offset.storage.topic": Refusal("the position is stored with the source; remove this option"),
    "database.history.pulsar.topic": _NO_HISTORY,
    "database.history.pulsar.service.url": _NO_HISTORY,
    "key.converter": Refusal("keys are column values, or JSON objects of several columns; remove this option"),
    "value.converter": Refusal(
        "values are always JSON; remove this option", ("org.apache.kafka.connect.json.JsonConverter",)
    ),
    "table.exclude.list": Refusal(f"use expressions in table.include.list {_LEFT_OUT}"),
    "table.blacklist": Refusal(f"use expressions in table.include.list {_LEFT_OUT}"),
    "schema.exclude.list": Refusal(
        "use expressions in schema.include.list that exclude schemas, such as (?!secret$).*"
    ),
    "schema.blacklist": Refusal("use expressions in schema.include.list that exclude schemas, such as (?!secret$).*"),
    "slot.drop.on.stop": Refusal(
        "the slot is kept so that no change is lost; drop it with pg_drop_replication_slot", (False,)
    ),
}


@dataclass
class PostgresCdcConfig:
    """Settings of the ``postgres-cdc`` source."""

    unsupported: ClassVar[Unsupported] = _UNSUPPORTED

    hostname: str = option("Server host.", key="database.hostname", aliases=("host",))
    user: str = option("User name; the user needs the REPLICATION attribute.", key="database.user", secret=True)
    dbname: str = option("Database name.", key="database.dbname", aliases=("database",))
    port: int = option("Server port.", key="database.port", default=5432, limits=(1, 65535))
    password: str = option(
        "Password of the user.", key="database.password", default="", secret=True
    )  # fmt: skip
    sslmode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] = option(
        "TLS mode, as in libpq.", key="database.sslmode", default="prefer"
    )
    tables: list[str] = option(
        "Regular expressions for tables to read, as schema.table; empty for all tables.",
        key="table.include.list",
        aliases=("table.whitelist",),
        default=[],
    )
    schemas: list[str] = option(
        "Regular expressions for schemas to read; empty for all schemas.",
        key="schema.include.list",
        aliases=("schema.whitelist",),
        default=[],
    )
    snapshot_mode: Literal["initial", "never", "when_needed"] = option(
        "initial: send existing rows first, as changes with op r; never: send only new changes; when_needed: like "
        "initial, and repeat the snapshot if the slot no longer exists.",
        key="snapshot.mode",
        aliases=("snapshotMode",),
        default="initial",
    )
    slot: str = option(
        "Name of the replication slot; empty to derive it from the source name. Created if it does not exist.",
        key="slot.name",
        default="",
    )
    publication: str = option(
        "Name of the publication; empty to derive it from the source name. Created if it does not exist, for the "
        "tables in table.include.list, or for all tables, which requires a superuser.",
        key="publication.name",
        default="",
    )
    plugin: Literal["pgoutput"] = option(
        "Output plugin, which is built into the server.", key="plugin.name", default="pgoutput"
    )
    envelope: Literal["plain", "debezium"] = option(
        "Format of the values. plain: op, before, after, table, lsn and ts; debezium: op, before, after, source and "
        "ts_ms.",
        default="plain",
    )
    server_name: str = option(
        "Value of source.name with envelope debezium; empty for the database name.",
        key="topic.prefix",
        aliases=("database.server.name",),
        default="",
    )
    tombstones: bool = option(
        "Whether to send a record with the key and no value after each delete.",
        key="tombstones.on.delete",
        default=False,
    )
    messages: bool = option(
        "Whether to send messages written with pg_logical_emit_message, as records with op m.", default=False
    )


@dataclass(slots=True)
class _Batch:
    """The records of one read.

    Attributes:
        end_lsn: LSN up to which the log can be released once this and all earlier batches are durable.
        is_durable: whether this batch is durable.
    """

    end_lsn: int
    is_durable: bool = False


@dataclass(slots=True)
class _Progress:
    """Progress of the source since it was opened.

    Attributes:
        position: commit LSN and number of the last change read, or None before a snapshot.
        end_lsn: end of the last complete transaction.
        durable_lsn: LSN up to which the log can be released.
        batches: batches in flight, in order.
    """

    position: tuple[int, int] | None
    end_lsn: int = 0
    durable_lsn: int = 0
    batches: deque[_Batch] = field(default_factory=deque)

    def settle(self) -> None:
        """Remove durable batches from the front, and advance `durable_lsn`."""
        while self.batches and self.batches[0].is_durable:
            self.durable_lsn = max(self.durable_lsn, self.batches.popleft().end_lsn)


class PostgresCdcSource(Source):
    """Reads changes of PostgreSQL tables through logical replication, after a snapshot of their rows."""

    config = PostgresCdcConfig
    _progress: _Progress | None = None
    _sql: Connection[Any] | None = None
    _stream: LogStream | None = None
    _snapshot: Snapshot | None = None
    _tables: FollowedTables | None = None
    _added: Iterator[list[Record]] | None = None
    _reader: RowReader | None = None

    def check(self, config: PostgresCdcConfig) -> None:
        """Validate the configuration."""
        if config.slot and not re.fullmatch("[a-z0-9_]{1,63}", config.slot):
            raise InvalidConfig(
                f"invalid slot.name {config.slot!r}: expected 1 to 63 lower-case letters, digits and underscores"
            )
        for key, patterns in (("table.include.list", config.tables), ("schema.include.list", config.schemas)):
            for pattern in patterns:
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise InvalidConfig(f"{key}: invalid regular expression {pattern!r}: {error}") from None

    def not_effectively_once(self, config: PostgresCdcConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        if config.snapshot_mode != "never":
            return "an interrupted snapshot is repeated with different rows: set snapshot.mode to never"
        return "messages outside transactions have no position: set messages to false" if config.messages else ""

    def not_parallel(self, config: PostgresCdcConfig) -> str:
        """Return why only one instance can run, or an empty string."""
        return "a replication slot supports only one reader"

    # -- opening ------------------------------------------------------------------------------------------------------

    def open(self, config: PostgresCdcConfig, context: SourceContext) -> None:
        """Open the connector."""
        self._config, self._log = config, context.logger
        kept = context.position
        progress = self._progress = _Progress((kept["lsn"], kept["index"]) if kept else None)
        default = "magnetar_" + re.sub("[^a-z0-9_]", "_", context.name.lower())
        self._slot = slot = config.slot or default[:63]
        self._publication = config.publication or default[:63]
        self._conninfo = {
            "host": config.hostname,
            "port": config.port,
            "user": config.user,
            "password": config.password or None,
            "dbname": config.dbname,
            "sslmode": config.sslmode,
        }
        sql = self._sql = connect(self._conninfo)
        check_server(sql)
        is_listed = bool(config.tables or config.schemas)
        create_publication(sql, self._publication, existing_tables(sql, self._is_wanted) if is_listed else None)
        self._added = None
        self._tables = FollowedTables(sql, self._publication, self._is_wanted, self._log) if is_listed else None
        envelope = Envelope(
            config.envelope == "debezium", config.server_name or config.dbname, config.dbname, config.tombstones
        )
        self._changes = ChangeMaker(envelope, self._is_wanted, partial(primary_key, sql))
        self._in_transaction = False
        self._index = self._skipped = 0
        confirmed = self._confirmed = slot_position(sql, slot)
        if confirmed is None:
            if progress.position is not None and config.snapshot_mode != "when_needed":
                place = lsn_text(progress.position[0])
                raise Retry(
                    f"replication slot {slot!r} no longer exists, and changes since {place} are lost: "
                    f"{lost_remedy(slot)}",
                    5.0,
                )
            progress.position = None
            with contextlib.closing(connect(self._conninfo, is_replication=True)) as making:
                command(making, f"CREATE_REPLICATION_SLOT {identifier(slot)} LOGICAL pgoutput NOEXPORT_SNAPSHOT")
        if self._tables is not None and config.snapshot_mode != "never":
            self._tables.begin(kept.get("tables") if kept and progress.position else ())
        if progress.position is None and config.snapshot_mode != "never":
            self._snapshot = Snapshot(self._conninfo, f"{slot[:50]}_{secrets.token_hex(6)}")
            self._rows = self._snapshot_records(self._snapshot)
        else:
            self._begin()

    def _is_wanted(self, table: str) -> bool:
        schema = table.partition(".")[0]
        config = self._config
        return (
            not config.tables or any(re.fullmatch(pattern, table, re.IGNORECASE) for pattern in config.tables)
        ) and (not config.schemas or any(re.fullmatch(pattern, schema, re.IGNORECASE) for pattern in config.schemas))

    def _begin(self) -> None:
        """Start replication."""
        progress = self._progress
        assert progress is not None
        connection = connect(self._conninfo, is_replication=True)
        options = {"proto_version": "1", "publication_names": identifier(self._publication)}
        if self._config.messages:
            options["messages"] = "true"
        try:
            start_lsn = progress.position[0] if progress.position else 0
            # The server sends transactions committed at the start LSN or later.
            self._stream = LogStream(connection, self._slot, start_lsn, options)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close the connector."""
        for it in (self._stream, self._snapshot, self._reader, self._sql):
            if it is not None:
                it.close()
        self._stream = self._snapshot = self._reader = self._sql = None

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self) -> list[Record] | None:
        """Return the next records, or None if none are available yet."""
        if self._snapshot is not None:
            return self._read_snapshot(self._snapshot)
        stream, progress = self._stream, self._progress
        assert stream is not None
        assert progress is not None
        is_free = self._added is None and not self._in_transaction
        if is_free and self._tables is not None and (tables := self._tables.ready(stream.seen_lsn)):
            self._added = self._added_records(tables)
        if self._added is not None:
            progress.settle()
            stream.tell(progress.durable_lsn)
            records = next(self._added, [])
            if not records:
                self._added = None
            return self._on_their_way(records)
        records = self._read_log(stream)
        progress.settle()
        if not progress.batches and not records and not self._in_transaction:
            progress.durable_lsn = max(progress.durable_lsn, stream.seen_lsn, progress.end_lsn)
        stream.tell(progress.durable_lsn, asks=self._tables is not None and self._tables.is_waiting)
        return self._on_their_way(records)

    def _read_log(self, stream: LogStream) -> list[Record]:
        records: list[Record] = []
        size, until_s = 0, time.monotonic() + READ_S
        while len(records) < RECORDS_AT_ONCE and size < BYTES_AT_ONCE and time.monotonic() < until_s:
            data = stream.next(0.0 if records else WAIT_S)
            if data is None:
                break
            for record in self._records(data):
                size += len(record.value)
                records.append(record)
        return records

    def _on_their_way(self, records: list[Record]) -> list[Record] | None:
        assert self._progress is not None
        if not records:
            return None
        batch = _Batch(self._progress.end_lsn)
        self._progress.batches.append(batch)
        durable = partial(setattr, batch, "is_durable", True)
        for record in records:
            record.acknowledge = durable
        return records

    def _records(self, data: bytes) -> list[Record]:
        """Return the records of a log message, except changes before the position."""
        progress = self._progress
        assert progress is not None
        try:
            message = decode(data)
        except MalformedMessage as error:
            raise Retry(f"the server sent an invalid pgoutput message: {error}") from error
        if isinstance(message, Commit):
            self._in_transaction = False
            progress.end_lsn = message.end_lsn
            return []
        records = self._changes.records(message)
        if isinstance(message, Begin):
            self._in_transaction = True
            lsn, passed = progress.position or (0, 0)
            self._index = 0
            self._skipped = passed if message.commit_lsn == lsn else 0
            if message.commit_lsn < lsn:
                self._skipped = 1 << 62
            return []
        if isinstance(message, Relation | Type | Origin) or not self._in_transaction:
            return records
        self._index += 1
        if self._index <= self._skipped:
            return []
        progress.position = (self._changes.moment.lsn, self._index)
        return records

    def snapshot(self) -> dict[str, Any] | None:
        """Return the current position."""
        position = self._progress.position if self._progress is not None else None
        if position is None:
            return None
        complete = self._tables.complete if self._tables is not None else None
        more = {} if complete is None else {"tables": sorted(complete)}
        return {"lsn": position[0], "index": position[1], **more}

    # -- existing rows ------------------------------------------------------------------------------------------------

    def _read_snapshot(self, snapshot: Snapshot) -> list[Record] | None:
        assert self._progress is not None
        records = next(self._rows, None)
        if records is not None:
            return self._on_their_way(records)
        self._snapshot = None
        self._progress.position = self._behind_snapshot(snapshot)
        self._log.info("completed the snapshot; reading changes from %s", lsn_text(self._progress.position[0]))
        self._begin()
        return None

    def _snapshot_records(self, snapshot: Snapshot) -> Iterator[list[Record]]:
        """Yield the rows of all tables, and set the position with the last ones."""
        assert self._sql is not None
        assert self._progress is not None
        relations = published_tables(self._sql, self._publication)
        last = yield from self._row_records(snapshot, relations, snapshot.lsn)
        if last:
            self._progress.position = self._behind_snapshot(snapshot)
            yield last

    def _row_records(
        self, reader: RowReader, relations: Sequence[Relation], lsn: int
    ) -> Generator[list[Record], None, list[Record]]:
        """Yield the rows of tables, and return the last batch once the reader's transaction has ended."""
        moment = Moment(lsn, int(time.time() * 1000))
        waiting: list[Record] = []
        for relation in relations:
            table = self._changes.table(relation)
            if not table.is_wanted:
                continue
            self._log.info("reading the rows of %s", table.name)
            for rows in reader.rows(relation, RECORDS_AT_ONCE):
                if waiting:
                    yield waiting
                waiting = [self._changes.snapshot_row(table, row, moment) for row in rows]
        reader.close()
        if self._tables is not None:
            self._tables.finish([one for one in relations if self._is_wanted(f"{one.schema}.{one.name}")])
        return waiting

    def _added_records(self, relations: Sequence[Relation]) -> Iterator[list[Record]]:
        """Yield the rows of tables that have joined. The log is not read meanwhile, so that changes follow the rows."""
        assert self._stream is not None
        self._reader = RowReader(self._conninfo)
        yield (yield from self._row_records(self._reader, relations, self._stream.seen_lsn))

    def _behind_snapshot(self, snapshot: Snapshot) -> tuple[int, int]:
        """Return the position at which changes start.

        If the slot already existed, an earlier snapshot may have been interrupted, and its rows are in the topic. In
        that case, all changes since the slot was created follow, including those that this snapshot contains: rows
        deleted meanwhile are not in this snapshot, so their deletions must be sent.
        """
        return (snapshot.lsn if self._confirmed is None else self._confirmed, 0)
