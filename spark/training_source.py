"""Data source with one row that has a column of each type used by topics, for the JVM that writes the class archive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


class TrainingSource(DataSource):
    """Provides one row."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "magnetar-training"

    def schema(self) -> str:
        """Return columns of all types that topic columns can have."""
        return "value binary, key string, time timestamp, properties map<string,string>"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the row."""
        return TrainingReader()


class TrainingReader(DataSourceReader):
    """Provides one row."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the row as a record batch."""
        import pyarrow as pa

        schema = pa.schema(
            {
                "value": pa.binary(),
                "key": pa.string(),
                "time": pa.timestamp("us", "UTC"),
                "properties": pa.map_(pa.string(), pa.string()),
            }
        )
        row = {"value": b"v", "key": "k", "time": 0, "properties": [("a", "b")]}
        yield pa.RecordBatch.from_pylist([row], schema)
