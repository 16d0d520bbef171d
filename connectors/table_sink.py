"""Shared parts of the table format sinks: batch commits, schemas, and write positions of topics."""

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
    """Shared settings of the table format sinks: table creation, schema evolution and commit size."""

    create_table: bool = option("Whether to create the table if it does not exist.", default=True)
    schema: dict[str, str] = option(
        "Column types, used when the sink creates the table: string, long, int, double, float, boolean, timestamp, "
        "date, binary or decimal(P,S). If empty, columns are inferred from the first batch.",
        default={},
    )
    schema_evolution: SchemaEvolution = option(
        "Action for records with a field that is not a column: reject the record, ignore the field, or add the column.",
        default="REFUSE",
    )
    batch_size: int = option("Maximum number of rows per commit.", default=10_000, limits=(1, 10_000))
    batch_bytes: int = option("Maximum bytes of records per commit.", default=64 << 20, limits=(1, 1 << 30))
    batch_time_ms: int = option(
        "Maximum time to wait for more records, in milliseconds.", default=5000, limits=(0, 60_000)
    )


class TableSink(Sink, ABC):
    """Writes each batch as one commit to a table.

    With EFFECTIVELY_ONCE, a commit contains the number of each topic's last record, under a name that consists of an ID
    of the sink's creation and the topic. Redelivered records that were already committed are skipped.
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
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return ""

    def batching(self, config: Any) -> Batching:
        """Return the batch limits."""
        return Batching(config.batch_size, config.batch_bytes, config.batch_time_ms / 1000)

    # -- for subclasses --------------------------------------------------------------------------------------------

    @abstractmethod
    def find(self) -> bool:
        """Load the table and return whether it exists."""

    @abstractmethod
    def create(self, schema: pa.Schema) -> None:
        """Create the table, unless another client has just created it, and load it."""

    @abstractmethod
    def columns(self) -> pa.Schema:
        """Return the table columns."""

    @abstractmethod
    def stored(self, name: str) -> int:
        """Return the last number committed under a name, or -1 for an unknown name."""

    @abstractmethod
    def commit(self, rows: pa.Table, last: Mapping[str, int], added: pa.Schema) -> None:
        """Append rows in one commit, together with numbers to store under their names, and new columns.

        Raises:
            Retry: the commit failed or conflicted, and the rows may or may not have been written.
        """

    # -- batches --------------------------------------------------------------------------------------------------

    def begin(self, config: TableConfig, context: SinkContext) -> None:
        """Load the table if it exists. Called at the end of a format's ``open``."""
        self._settings = config
        self._context = context
        self._rows = self._rows or RowReader(config.schema_evolution)
        self._is_there = self.find()
        if not self._is_there and not config.create_table:
            raise Retry("table does not exist: create the table, or set createTable to true")

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
                raise Retry("cannot create the table: no record has a non-null field")
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
        """Return, for each record, whether it is uncommitted. Adds the numbers to commit to ``last``."""
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
