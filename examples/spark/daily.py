"""Writes sales by day and shop to Parquet: a function that receives its backlog as one DataFrame.

    magnetar functions create --runtime spark --name daily --py examples/spark/daily.py --classname daily.process \\
        --inputs sales --user-config '{"path": "/data/daily"}' --subs-position Earliest
    magnetar functions trigger --name daily

Each message is JSON: {"shop": "Basel", "at": "2026-11-21T10:11:12Z", "cents": 1250}. A run writes to a folder named
after its number, and overwrites only that folder, so that a repeated run counts nothing twice.
Add the sums of several runs when reading: spark.read.parquet(path).groupBy("day", "shop").sum("cents").
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def process(df: DataFrame, context: Any) -> None:
    """Write the sums of the sales in the backlog."""
    sale = f.from_json(df.value.cast("string"), "shop STRING, at TIMESTAMP, cents LONG").alias("sale")
    daily = (
        df.select(sale)
        .select("sale.*")
        .groupBy(f.to_date("at").alias("day"), "shop")
        .agg(f.sum("cents").alias("cents"), f.count("*").alias("sales"))
    )
    path = context.get_user_config_value("path")
    daily.coalesce(1).write.mode("overwrite").parquet(f"{path}/run={context.run_number}")
    context.get_logger().info("wrote run %d to %s", context.run_number, path)
