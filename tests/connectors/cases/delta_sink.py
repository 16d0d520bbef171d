"""The sink ``delta``, on a local directory that becomes unavailable meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

from tests.connectors.cases.base import SinkCase


class DeltaSinkCase(SinkCase):
    """A table whose columns are taken from the first batch."""

    connector = "delta"
    has_target = True
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = [
        ({"tablePath": None}, "tablePath is missing"),
        ({"tablePath": "/proc/none/table"}, "retrying"),
        ({"createTable": False}, "table does not exist: create the table, or set createTable"),
        ({"schema": {"id": "number"}}, "schema: invalid type 'number' for column 'id': expected one of"),
        ({"schema": {"id": "long"}, "partitionBy": "day"}, "partitionBy: column 'day' is not in schema"),
        ({"schemaEvolution": "GROW"}, "schemaEvolution must be one of REFUSE, IGNORE, MERGE"),
        ({"batchSize": 20_000}, "batchSize must be at most 10000"),
        ({"tablePaht": "x"}, "tablePaht"),
    ]

    @property
    def table(self) -> Path:
        return self.directory / "tables" / "t"

    def configs(self) -> dict[str, object]:
        return {"tablePath": str(self.table), "batchTimeMs": 100, "batchSize": 2000}

    def take_away(self) -> None:
        """Replace the tables' directory with a file."""
        self.table.parent.rename(self.directory / "elsewhere")
        self.table.parent.touch()

    def bring_back(self) -> None:
        self.table.parent.unlink()
        (self.directory / "elsewhere").rename(self.table.parent)

    def bad_record(self) -> bytes | None:
        return b'{"id": "no number", "text": "t"}'

    def read_back(self) -> list[tuple[int, str]]:
        """Read the table's log and the files that it names."""
        from pyarrow import parquet

        actions = [
            json.loads(line)
            for version in sorted((self.table / "_delta_log").glob("*.json"))
            for line in version.read_text().splitlines()
        ]
        assert not any("remove" in action for action in actions)
        files = [self.table / unquote(action["add"]["path"]) for action in actions if "add" in action]
        rows = [row for file in files for row in parquet.read_table(file).to_pylist()]
        return [(row["id"], row["text"]) for row in rows]


class ExactDeltaSinkCase(DeltaSinkCase):
    """A declared table, with EFFECTIVELY_ONCE."""

    processing_guarantees = "EFFECTIVELY_ONCE"
    bad_configs: ClassVar[list[tuple[dict[str, Any], str]]] = []

    def configs(self) -> dict[str, object]:
        return {**super().configs(), "schema": {"id": "long", "text": "string"}}
