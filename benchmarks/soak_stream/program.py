"""The streams of the soak, in a process that is killed and restarted; ``python -m benchmarks.soak_stream.program``.

Its only argument is a `Task` as JSON. It exits when the streams have processed the rows present at its start, unless
they run continuously.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magnetar.spark.session import SessionConfig, open_session

from .rows import KEYS, WATERMARK_S, WINDOW_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IN, TOTALS, COPIES, LAKE = "in", "totals", "copies", "lake"
LAKE_ROWS = "lake-rows"


@dataclass(frozen=True, kw_only=True)
class Task:
    """Configuration of the program.

    Attributes:
        directory: directory for checkpoints, the table and Spark's files.
        master: Spark master.
        settings: Spark settings.
        service_url: broker address.
        web_url: address of its REST interface.
        rows_per_batch: rows per batch of each stream.
        has_lake: whether one of the streams writes to a Delta table.
        period_s: interval of batches; 0 to end when the initial rows are processed.
    """

    directory: str
    master: str
    settings: Mapping[str, str]
    service_url: str
    web_url: str
    rows_per_batch: int
    has_lake: bool = False
    period_s: int = 0

    @property
    def trigger(self) -> dict[str, Any]:
        """Return the trigger setting for Spark."""
        return {"processingTime": f"{self.period_s} seconds"} if self.period_s else {"availableNow": True}

    def to_json(self) -> str:
        """Serialise the configuration for the command line."""
        return json.dumps(asdict(self))

    def checkpoint(self, name: str) -> Path:
        """Return the checkpoint directory of a stream."""
        return Path(self.directory) / f"{name}-checkpoint"

    def streams(self) -> tuple[str, ...]:
        """Return the names of the streams."""
        return (TOTALS, COPIES, *((LAKE,) if self.has_lake else ()))


def rows_of(spark: SparkSession, task: Task) -> DataFrame:
    """Return the rows of the topic as a stream."""
    return (
        spark.readStream.format("magnetar")
        .option("service.url", task.service_url)
        .option("topic", IN)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", task.rows_per_batch)
        .option("minPartitions", 4)
        .load()
        .select("value")
    )


def totals(rows: DataFrame) -> DataFrame:
    """Return count and sum by window and key, emitted when a window is complete."""
    from pyspark.sql import functions as sf

    field = sf.split(sf.col("value").cast("string"), ",")
    parsed = rows.select(
        field[0].cast("bigint").alias("number"),
        field[1].cast("bigint").alias("amount"),
        sf.timestamp_millis(field[2].cast("bigint")).alias("at"),
    )
    counted = (
        parsed.withWatermark("at", f"{WATERMARK_S} seconds")
        .groupBy(sf.window("at", f"{WINDOW_S} seconds").alias("window"), (sf.col("number") % KEYS).alias("key"))
        .agg(sf.count("*").alias("count"), sf.sum("amount").alias("sum"))
    )
    return counted.selectExpr(
        "concat(unix_seconds(window.start), '/', key) AS __key",
        "to_json(named_struct('count', count, 'sum', sum)) AS value",
    )


def run(task: Task) -> None:
    """Run all streams until they end."""
    directory = Path(task.directory)
    config = SessionConfig(directory=directory / "spark", master=task.master, heap="1g", settings=task.settings)
    with open_session(config) as session:
        rows = rows_of(session.spark, task)

        def begun(name: str, frame: DataFrame, form: str, place: str | None = None, **options: str) -> Any:
            writer = frame.writeStream.queryName(name).format(form).options(**options).trigger(**task.trigger)
            return writer.option("checkpointLocation", str(task.checkpoint(name))).start(place)

        to_topic = {"service.url": task.service_url, "admin.url": task.web_url}
        queries = [
            begun(TOTALS, totals(rows), "magnetar", topic=TOTALS, sortBy="__key", **to_topic),
            begun(COPIES, rows, "magnetar", topic=COPIES, unshuffled="true", **to_topic),
        ]
        if task.has_lake:
            queries.append(begun(LAKE, rows, "delta", str(directory / LAKE)))
        for query in queries:
            query.awaitTermination()
        if task.has_lake:
            table = session.spark.read.format("delta").load(str(directory / LAKE))
            table.write.mode("overwrite").parquet(str(directory / LAKE_ROWS))


if __name__ == "__main__":
    run(Task(**json.loads(sys.argv[1])))
