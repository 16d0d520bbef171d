"""Throughput of decoding messages to columns in Spark: by the topic's schema, compared with Spark's own `from_json`.

Like `spark_read`, it runs in a separate process: `python -m benchmarks.spark_schemas URL REPEATS ROWS` prints JSON. One
topic contains the rows as AVRO and another as JSON, in entries of 1,000; the query needs all columns.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .figure import Figure, Table
from .load import hold
from .plan import Plan
from .spark_extra import is_installed, measured

ROWS, QUICK_ROWS = 1_000_000, 100_000
AVRO, JSON, BY_FROM_JSON = "avro", "json", "from_json"
_IN_JSON = "id BIGINT, user STRING, amount DOUBLE, ok BOOLEAN, city STRING, at BIGINT"
_ROWS_OF = (
    "id",
    "concat('user-', id % 50000) AS user",
    "id / 7 AS amount",
    "id % 2 = 0 AS ok",
    "element_at(array('Rome', 'Oslo', 'São Paulo'), cast(id % 3 + 1 AS INT)) AS city",
    "timestamp_micros(1700000000000000 + id) AS at",
)
_QUERY = ("count(id)", "max(user)", "sum(amount)", "count_if(ok)", "max(city)", "max(at)")


def measure_spark_schemas(plan: Plan) -> Iterator[Figure]:
    """Measure rows per second when all columns are used."""
    if not is_installed("spark-schemas"):
        return
    rows = QUICK_ROWS if plan.repeats == 1 else ROWS
    with plan.server("broker") as server:
        for topic in (AVRO, JSON):
            hold(server.service_url, topic, "kept")
        found = measured("spark_schemas", server.service_url, plan.repeats, rows)
    for kind in (AVRO, JSON):
        yield Figure(
            name=f"Spark: six columns of {rows / 1e6:g} million messages by their schema, {kind.upper()}",
            ours=rows / found[kind],
            unit="rows/s",
            peer=rows / found[BY_FROM_JSON],
            peer_name="from_json on the bytes of the same rows",
            table=Table.OWN,
        )


def main(service_url: str, repeats: int, rows: int) -> None:
    """Measure in this process, and print JSON."""
    from magnetar.spark.session import SessionConfig, open_session

    with tempfile.TemporaryDirectory() as directory:
        config = SessionConfig(directory=Path(directory), master="local[2]", log_file=Path(directory) / "jvm.log")
        with open_session(config) as session:
            spark = session.spark
            for topic in (AVRO, JSON):
                where = {"service.url": service_url, "topic": topic, "outputSchema": topic.upper()}
                made = spark.range(0, rows, 1, 2).selectExpr(*_ROWS_OF)
                made.write.format("magnetar").mode("append").options(**where).save()
            source = spark.read.format("magnetar").option("service.url", service_url)
            frames: dict[str, Any] = {}
            for topic in (AVRO, JSON):
                options = {"useTopicSchema": "true", "columns": "id,user,amount,ok,city,at"}
                frames[topic] = spark.read.format("magnetar").option("service.url", service_url).options(**options)
                frames[topic] = frames[topic].load(topic)
            said = source.option("columns", "value").load(JSON)
            said = said.selectExpr(f"from_json(cast(value AS STRING), '{_IN_JSON}') AS row").select("row.*")
            frames[BY_FROM_JSON] = said.selectExpr("* EXCEPT (at)", "timestamp_micros(at) AS at")
            found = {name: _time(frame, repeats, rows) for name, frame in frames.items()}
    print(json.dumps(found))


def _time(frame: Any, repeats: int, rows: int) -> float:
    """Return the median duration of a query in seconds, after an unmeasured one."""
    took = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        [row] = frame.selectExpr(*_QUERY).collect()  # Spark would reuse the task results of an identical query
        took.append(time.perf_counter() - began)
        assert row[0] == rows
    return statistics.median(took[1:])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
