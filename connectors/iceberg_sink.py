"""The ``iceberg`` sink appends rows to an Apache Iceberg table.

Each batch is one commit, so batches are large: many records, or several seconds' worth of records. With
EFFECTIVELY_ONCE, each commit also stores the number of each topic's last record in a table property. Redelivered
records that were already committed are skipped. Unlike snapshots, table properties do not expire.
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
class IcebergConfig(TableConfig):
    """Settings of the ``iceberg`` sink."""

    table: str = option("Table name with its namespace, such as sales.orders.", aliases=("tableName",))
    catalog_name: str = option("Catalog name.", default="default")
    catalog_properties: dict[str, str] = option(
        "PyIceberg settings of the catalog and its storage: type (rest, sql, hive, glue), uri,"
        " warehouse, credential, s3.endpoint, s3.access-key-id, s3.secret-access-key.",
        secret=True,
    )


class IcebergSink(TableSink):
    """Appends JSON objects as rows to an Iceberg table, with one commit per batch."""

    config = IcebergConfig

    def check(self, config: IcebergConfig) -> None:
        """Validate the configuration."""
        super().check(config)
        if not all(config.table.split(".")) or "." not in config.table:
            raise InvalidConfig(f"invalid table {config.table!r}: expected namespace.name, such as sales.orders")
        if not all(isinstance(value, str) for value in config.catalog_properties.values()):
            raise InvalidConfig("invalid catalogProperties: all values must be strings")

    def open(self, config: IcebergConfig, context: SinkContext) -> None:
        """Open the connector."""
        catalogs: Any = need("iceberg", "pyiceberg.catalog")
        self._exceptions: Any = need("iceberg", "pyiceberg.exceptions")
        self._config = config
        self._table: Any = None
        try:
            self._catalog = catalogs.load_catalog(config.catalog_name, **config.catalog_properties)
        except (ValueError, TypeError) as error:  # unknown type or missing setting
            raise InvalidConfig(f"catalogProperties: {_line(error)}") from error
        except Exception as error:
            raise Retry(f"cannot load catalog {config.catalog_name!r}: {_line(error)}") from error
        self.begin(config, context)

    def close(self) -> None:
        """Close the connector."""
        if hasattr(self, "_catalog"):
            self._catalog.close()

    # Catalogs and storage backends raise errors of their own libraries: requests, SQLAlchemy, botocore, Arrow. None of
    # these is caused by a record, so all of them are retried.

    def find(self) -> bool:
        """Load the table and return whether it exists."""
        try:
            self._table = self._catalog.load_table(self._config.table)
        except (self._exceptions.NoSuchTableError, self._exceptions.NoSuchNamespaceError):
            return False
        except Exception as error:
            raise Retry(f"cannot load table {self._config.table!r}: {_line(error)}") from error
        return True

    def create(self, schema: pa.Schema) -> None:
        """Create the table if it does not exist, and load it."""
        try:
            self._catalog.create_namespace_if_not_exists(self._config.table.rpartition(".")[0])
            self._table = self._catalog.create_table_if_not_exists(self._config.table, schema)
        except Exception as error:
            raise Retry(f"cannot create table {self._config.table!r}: {_line(error)}") from error

    def columns(self) -> pa.Schema:
        """Return the table columns."""
        schema: pa.Schema = self._table.schema().as_arrow()
        return schema.remove_metadata()

    def stored(self, name: str) -> int:
        """Return the last number committed under a name, or -1."""
        return int(self._table.properties.get(name, -1))

    def commit(self, rows: pa.Table, last: Mapping[str, int], added: pa.Schema) -> None:
        """Append rows in one commit."""
        if last:
            # PyIceberg would retry the commit on top of a concurrent one, which may contain the same records, written
            # by an instance that was presumed dead. PyIceberg reads this table property, which is the only way to
            # disable that.
            self._table.metadata.properties["commit.retry.num-retries"] = "0"
        try:
            with self._table.transaction() as transaction:
                if added.names:
                    with transaction.update_schema() as update:
                        update.union_by_name(rows.schema)
                transaction.append(rows)
                if last:
                    transaction.set_properties({name: str(number) for name, number in last.items()})
        except Exception as error:
            raise Retry(f"cannot commit to table {self._config.table!r}: {_line(error)}") from error


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
