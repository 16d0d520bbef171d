"""The ``delta`` sink appends rows to a Delta Lake table.

Each batch is one commit, so batches are large: many records, or several seconds' worth of records. With
EFFECTIVELY_ONCE, each commit stores the number of each topic's last record as a Delta transaction (``txn``: app ID and
version). Redelivered records that were already committed are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..api.connector import Retry, SinkContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .libraries import need
from .table_sink import TableConfig, TableSink

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(kw_only=True)
class DeltaConfig(TableConfig):
    """Settings of the ``delta`` sink."""

    table_path: str = option(
        "Table location: a directory, or a URL such as s3://bucket/table.", aliases=("tableUri", "path")
    )
    storage_options: dict[str, str] = option(
        "Storage settings, such as AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL.",
        default={},
        secret=True,
    )
    partition_by: list[str] = option("Partition columns, used when the sink creates the table.", default=[])


class DeltaSink(TableSink):
    """Appends JSON objects as rows to a Delta Lake table, with one commit per batch."""

    config = DeltaConfig

    def check(self, config: DeltaConfig) -> None:
        """Validate the configuration."""
        super().check(config)
        if config.schema and (missing := set(config.partition_by) - config.schema.keys()):
            raise InvalidConfig(f"partitionBy: column {sorted(missing)[0]!r} is not in schema")
        if not all(isinstance(value, str) for value in config.storage_options.values()):
            raise InvalidConfig("invalid storageOptions: all values must be strings")

    def open(self, config: DeltaConfig, context: SinkContext) -> None:
        """Open the connector."""
        self._library: Any = need("delta", "deltalake")
        self._arrow: Any = need("delta", "pyarrow")
        self._errors: Any = (self._library.exceptions.DeltaError, OSError)
        self._config = config
        self._table: Any = None
        self.begin(config, context)

    # -- the table ------------------------------------------------------------------------------------------------

    def find(self) -> bool:
        """Load the table and return whether it exists."""
        path, options = self._config.table_path, self._config.storage_options
        try:
            if not self._library.DeltaTable.is_deltatable(path, options):
                return False
            self._table = self._library.DeltaTable(path, storage_options=options)
        except self._errors as error:
            raise Retry(_line(path, error)) from error
        return True

    def create(self, schema: pa.Schema) -> None:
        """Create the table if it does not exist, and load it."""
        path = self._config.table_path
        if missing := [name for name in self._config.partition_by if name not in schema.names]:
            raise Retry(f"partitionBy: the first batch has no field {missing[0]!r}: declare the column in schema")
        try:
            self._table = self._library.DeltaTable.create(
                path,
                schema,
                mode="ignore",
                partition_by=self._config.partition_by or None,
                storage_options=self._config.storage_options,
            )
        except self._errors as error:
            raise Retry(_line(path, error)) from error

    def columns(self) -> pa.Schema:
        """Return the table columns."""
        return self._arrow.schema(self._table.schema().to_arrow())

    def stored(self, name: str) -> int:
        """Return the last number committed under a name, or -1."""
        version: int | None = self._table.transaction_version(name)
        return -1 if version is None else version

    def commit(self, rows: pa.Table, last: Mapping[str, int], added: pa.Schema) -> None:
        """Append rows in one commit."""
        library = self._library
        transactions = [library.Transaction(app, version) for app, version in last.items()]
        try:
            library.write_deltalake(
                self._table,
                rows,
                mode="append",
                schema_mode="merge" if added.names else None,
                storage_options=self._config.storage_options or None,
                commit_properties=library.CommitProperties(app_transactions=transactions or None),
            )
        except self._errors as error:
            raise Retry(_line(self._config.table_path, error)) from error


def _line(path: str, error: Exception) -> str:
    return f"{path}: {type(error).__name__}: {' '.join(str(error).split())[:400]}"
