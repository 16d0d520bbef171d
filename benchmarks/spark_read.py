"""How fast Spark reads a topic through the data source, beside a reader loop on the official client.

In a process of its own, for PySpark changes the process that it runs in: `python -m benchmarks.spark_read URL MESSAGES`
prints what it measured as JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pulsar

from .figure import Figure
from .load import hold, official, payloads_of, publish_repeated
from .plan import Plan
from .spark_extra import is_installed, measured

MESSAGES = 10_000_000
QUICK_MESSAGES = 2_000_000
OFFICIAL_MESSAGES = 200_000
SIZE_BYTES = 100
TARGET = 1_000_000
LOOP_FACTOR = 3  # promised over the official loop
TOPIC = "spark-backlog"
_BATCH = 1000
_MIB = 1024 * 1024


def measure_spark(plan: Plan) -> Iterator[Figure]:
    """Session start, memory, rows read and counted."""
    if not is_installed("spark"):
        return
    count = MESSAGES if plan.repeats > 1 else QUICK_MESSAGES
    with plan.server("broker") as server:
        hold(server.service_url, TOPIC, "kept")
        publish_repeated(server.service_url, TOPIC, payloads_of(SIZE_BYTES, _BATCH), count // _BATCH)
        theirs = statistics.median(_official(server.service_url) for _ in range(plan.repeats))
        found = measured("spark_read", server.service_url, plan.repeats)
    assert found["rows"] == count
    yield Figure(
        name="Spark: session start, JVM included",
        ours=found["start_s"],
        unit="s",
        more_is_better=False,
        note=f"first count after another {found['first_s']:.1f} s",
    )
    for columns in ("value", "all columns"):
        yield Figure(
            name=f"Spark: read and count {count / 1e6:.0f} million {SIZE_BYTES} B messages, {columns}",
            ours=count / found[columns],
            unit="rows/s",
            peer=theirs,
            peer_name="reader loop on the official client",
            target=TARGET,
        )
    yield Figure(
        name="Spark: read and count over the official reader loop, all columns",
        ours=count / found["all columns"] / theirs,
        unit="times",
        target=LOOP_FACTOR,
    )
    for process, what in (("driver", "the driver"), ("jvm", "the JVM"), ("workers", "all Python workers")):
        yield Figure(
            name=f"Spark: memory of {what} after reading (PSS)",
            ours=found[f"{process}_mib"],
            unit="MiB",
            more_is_better=False,
            note=found.get(f"{process}_note", ""),
        )


def _official(service_url: str) -> float:
    """Return messages per second of the loop that a user would write."""
    client = official(service_url)
    try:
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest, receiver_queue_size=10_000)
        reader.read_next(10_000).data()
        began = time.perf_counter()
        total_bytes = 0
        for _ in range(OFFICIAL_MESSAGES):
            total_bytes += len(reader.read_next(10_000).data())
        took_s = time.perf_counter() - began
        assert total_bytes == SIZE_BYTES * OFFICIAL_MESSAGES
        return OFFICIAL_MESSAGES / took_s
    finally:
        client.close()


def main(service_url: str, repeats: int) -> None:
    """Measure in this process; print JSON."""
    from magnetar.spark.session import SessionConfig, open_session

    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        config = SessionConfig(directory=Path(directory), master="local[2]", log_file=Path(directory) / "jvm.log")
        with open_session(config) as session:
            found["start_s"] = time.perf_counter() - began
            source = session.spark.read.format("magnetar").option("service.url", service_url)
            everything = source.load(TOPIC)
            began = time.perf_counter()
            found["rows"] = everything.count()
            found["first_s"] = time.perf_counter() - began
            for name, frame in (("value", source.option("columns", "value").load(TOPIC)), ("all columns", everything)):
                took = []
                for _ in range(repeats):
                    began = time.perf_counter()
                    assert frame.count() == found["rows"]
                    took.append(time.perf_counter() - began)
                found[name] = statistics.median(took)
            jvm = psutil.Process(session.pid)
            workers = jvm.children(recursive=True)
            found["driver_mib"] = psutil.Process(os.getpid()).memory_full_info().pss / _MIB
            found["jvm_mib"] = jvm.memory_full_info().pss / _MIB
            found["jvm_note"] = f"heap of at most {config.heap}"
            found["workers_mib"] = sum(child.memory_full_info().pss for child in workers) / _MIB
            found["workers_note"] = f"{len(workers)} processes, their parent included"
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
