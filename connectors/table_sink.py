"""What the sinks of table formats have in common: commits of batches, schemas, and how far topics are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..api.connector import Batching, Record, Retry, Sink, SinkContext
from ..api.connector_config import option
from .rows import RowReader, SchemaEvolution, check_columns, declared_schema, inferred_schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(kw_only=True)
class TableConfig:
    """When a table is created, what becomes of its schema, and how large commits are."""

    create_table: bool = option("Whether a table that is not there is created.", default=True)
    schema: dict[str, str] = option(
        "Columns of a table that is created, with their types: string, long, int, double, float, boolean, timestamp,"
        " date, binary, decimal(P,S). Empty to take them from the first batch.",
        default={},
    )
    schema_evolution: SchemaEvolution = option(
        "Of a record with a field that is no column of the table: refuse it, leave the field out, or add the column.",
        default="REFUSE",
    )
    batch_size: int = option("Rows of one commit at most.", default=10_000, limits=(1, 10_000))
    batch_bytes: int = option("Bytes of records of one commit at most.", default=64 << 20, limits=(1, 1 << 30))
    batch_time_ms: int = option("Milliseconds to wait for more.", default=5000, limits=(0, 60_000))


class TableSink(Sink, ABC):
    """Writes each batch as one commit of a table.

    With EFFECTIVELY_ONCE a commit carries the number of the last record of each topic, under a name of this sink's
    creation and the topic; what is committed already is left out when it comes again.
    """

    def __init__(self) -> None:
        self._rows: RowReader | None = None
        self._is_there = False
        self._context: SinkContext
        self._settings: TableConfig

    def check(self, config: Any) -> None:
        """Validate the configuration."""
        check_columns(config.schema)

    def not_effectively_once(self, config: Any) -> str:
        """Return why a configuration cannot be effectively once; empty if it can."""
        return ""

    def batching(self, config: Any) -> Batching:
        """Return the batch limits."""
        return Batching(config.batch_size, config.batch_bytes, config.batch_time_ms / 1000)

    # -- what a format does ---------------------------------------------------------------------------------------

    @abstractmethod
    def find(self) -> bool:
        """Load the table, and return whether it is there."""

    @abstractmethod
    def create(self, schema: pa.Schema) -> None:
        """Create the table, unless somebody was faster, and load it."""

    @abstractmethod
    def columns(self) -> pa.Schema:
        """Return the table's columns."""

    @abstractmethod
    def stored(self, name: str) -> int:
        """Return the number that was committed last under a name, -1 if none was."""

    @abstractmethod
    def commit(self, rows: pa.Table, last: Mapping[str, int], added: pa.Schema) -> None:
        """Append rows in one commit, with numbers to be kept under their names, and with new columns.

        Raises:
            Retry: it failed, or others committed meanwhile; nothing is known to be written.
        """

    # -- batches --------------------------------------------------------------------------------------------------

    def begin(self, config: TableConfig, context: SinkContext) -> None:
        """Look for the table; the end of a format's ``open``."""
        self._settings = config
        self._context = context
        self._rows = self._rows or RowReader(config.schema_evolution)
        self._is_there = self.find()
        if not self._is_there and not config.create_table:
            raise Retry("the table is not there; create it, or set createTable")

    def write_batch(self, records: Sequence[Record]) -> None:
        """Write a batch of records durably."""
        import pyarrow as pa

        rows = self._rows
        assert rows is not None
        rows.name_refused(records)
        documents = rows.documents(records)
        if not self._is_there:
            schema = declared_schema(self._settings.schema) if self._settings.schema else inferred_schema(documents)
            if not schema.names:
                raise Retry("the table is not there, and no record has a field that it could be created with")
            self.create(schema)
            self._is_there = True
        known = self.columns()
        added = rows.new_columns(documents, known)
        table = rows.table(records, documents, pa.schema([*known, *added]))
        last: dict[str, int] = {}
        if self._context.is_exact:
            chosen = self._choose(records, last)
            if not all(chosen):
                table = table.filter(pa.array(chosen))
        if table.num_rows:
            self.commit(table, last, added)

    def _choose(self, records: Sequence[Record], last: dict[str, int]) -> list[bool]:
        """Return of each record whether it is not committed yet, and put the numbers to be committed into ``last``."""
        before: dict[str, int] = {}
        chosen = []
        for record in records:
            name = f"magnetar/{self._context.incarnation}/{record.topic}"
            if name not in before:
                before[name] = self.stored(name)
            is_new = record.sequence > before[name]
            chosen.append(is_new)
            if is_new:
                last[name] = record.sequence
        return chosen
