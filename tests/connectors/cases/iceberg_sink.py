"""The sink ``iceberg`` with an SQLite catalog, on a local directory that becomes unavailable meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from tests.connectors.cases.base import SinkCase


class IcebergSinkCase(SinkCase):
    """A table whose columns are taken from the first batch."""

    connector = "iceberg"
    has_target = True
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = [
        ({"table": None}, "table is missing"),
        ({"table": "orders"}, "invalid table 'orders': expected namespace.name"),
        ({"catalogProperties": None}, "catalogProperties is missing"),
        ({"catalogProperties": {"type": "paper"}}, "catalogProperties: "),
        ({"createTable": False}, "table does not exist: create the table, or set createTable"),
        ({"schema": {"id": "decimal(50,2)"}}, "schema: invalid type 'decimal(50,2)' for column 'id': expected one of"),
        ({"batchTime": 5}, "batchTime"),
    ]

    @property
    def tables(self) -> Path:
        return self.directory / "tables"

    def properties(self) -> dict[str, str]:
        return {"type": "sql", "uri": f"sqlite:///{self.tables}/catalog.db", "warehouse": f"file://{self.tables}"}

    def prepare(self) -> None:
        self.tables.mkdir()

    def configs(self) -> dict[str, object]:
        return {"table": "n.t", "catalogProperties": self.properties(), "batchTimeMs": 100, "batchSize": 2000}

    def take_away(self) -> None:
        """Replace the directory with a file."""
        self.tables.rename(self.directory / "elsewhere")
        self.tables.touch()

    def bring_back(self) -> None:
        self.tables.unlink()
        (self.directory / "elsewhere").rename(self.tables)

    def bad_record(self) -> bytes | None:
        return b'{"id": 1.5, "text": "t"}'

    def read_back(self) -> list[tuple[int, str]]:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        catalog = load_catalog("default", **self.properties())
        try:
            rows = catalog.load_table("n.t").scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return []
        finally:
            catalog.close()
        return [(row["id"], row["text"]) for row in rows]


class ExactIcebergSinkCase(IcebergSinkCase):
    """A declared table, with EFFECTIVELY_ONCE."""

    processing_guarantees = "EFFECTIVELY_ONCE"
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = []

    def configs(self) -> dict[str, object]:
        return {**super().configs(), "schema": {"id": "long", "text": "string", "at": "timestamp"}}
