"""The sink ``delta``, on a local directory that is away in between."""

from __future__ import annotations

from pathlib import Path

from tests.connectors.cases.base import SinkCase


class DeltaSinkCase(SinkCase):
    """A table whose columns come from the first batch."""

    connector = "delta"
    has_target = True
    bad_configs = [
        ({"tablePath": None}, "tablePath is missing"),
        ({"tablePath": "/proc/none/table"}, "retrying"),
        ({"createTable": False}, "the table is not there; create it, or set createTable"),
        ({"schema": {"id": "number"}}, "schema: the type 'number' of id must be one of"),
        ({"schema": {"id": "long"}, "partitionBy": "day"}, "partitionBy: day is no column of schema"),
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
        """Put a file in the place of the tables' directory."""
        self.table.parent.rename(self.directory / "elsewhere")
        self.table.parent.touch()

    def bring_back(self) -> None:
        self.table.parent.unlink()
        (self.directory / "elsewhere").rename(self.table.parent)

    def bad_record(self) -> bytes | None:
        return b'{"id": "no number", "text": "t"}'

    def read_back(self) -> list[tuple[int, str]]:
        import deltalake

        if not (self.table / "_delta_log").is_dir():
            return []
        rows = (
            deltalake.QueryBuilder().register("t", deltalake.DeltaTable(self.table)).execute("select id, text from t")
        )
        return [(row["id"], row["text"]) for batch in rows.to_batches() for row in batch.to_pylist()]


class ExactDeltaSinkCase(DeltaSinkCase):
    """By EFFECTIVELY_ONCE, into a table that is declared."""

    processing_guarantees = "EFFECTIVELY_ONCE"
    bad_configs = []

    def configs(self) -> dict[str, object]:
        return {**super().configs(), "schema": {"id": "long", "text": "string"}}
