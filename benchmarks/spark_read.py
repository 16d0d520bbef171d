"""How fast Spark reads a topic through the data source, beside a reader loop on the official client.

In a process of its own, for PySpark changes the process that it runs in: `python -m benchmarks.spark_read URL MESSAGES`
prints what it measured as JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pulsar

from .figure import Figure
from .load import Shape, hold, official, publish
from .plan import Plan

MESSAGES = 10_000_000
QUICK_MESSAGES = 2_000_000
OFFICIAL_MESSAGES = 200_000
TARGET = 1_000_000
TOPIC = "spark-backlog"
TIMEOUT_S = 600.0
_MB = 1024 * 1024


def measure_spark(plan: Plan) -> Iterator[Figure]:
    """Session start, rows read and counted, memory."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        print("spark: left out, the extra is not installed; pip install 'magnetar[spark]'", file=sys.stderr)
        return
    wanted = MESSAGES if plan.repeats > 1 else QUICK_MESSAGES
    with plan.server("broker") as server:
        hold(server.service_url, TOPIC, "kept")
        count = 0
        while count < wanted:
            count += publish(server.service_url, TOPIC, Shape(1000, 100), 1.0)[0]
        theirs = statistics.median(_official(server.service_url) for _ in range(plan.repeats))
        command = [sys.executable, "-m", "benchmarks.spark_read", server.service_url, str(plan.repeats)]
        shown = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=TIMEOUT_S).stdout
    found = json.loads(shown.splitlines()[-1])
    assert found["rows"] == count
    yield Figure(
        name="Spark: session start, JVM included", ours=found["start_s"], unit="s", more_is_better=False,
        note=f"first count {found['first_s']:.1f} s; JVM {found['jvm_mb']:.0f} MB, driver {found['driver_mb']:.0f} MB,"
        f" Python workers {found['workers_mb']:.0f} MB (PSS)",
    )  # fmt: skip
    for columns in ("value", "all columns"):
        yield Figure(
            name=f"Spark: read and count {count / 1e6:.0f} million 100 B messages, {columns}",
            ours=count / found[columns],
            unit="rows/s",
            peer=theirs,
            peer_name="reader loop on the official client",
            target=TARGET,
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
        assert total_bytes == 100 * OFFICIAL_MESSAGES
        return OFFICIAL_MESSAGES / took_s
    finally:
        client.close()


def main(service_url: str, repeats: int) -> None:
    """Measure in this process; print JSON."""
    from magnetar.runtime.spark.session import SessionConfig, open_session

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
            found["jvm_mb"] = jvm.memory_full_info().pss / _MB
            found["driver_mb"] = psutil.Process(os.getpid()).memory_full_info().pss / _MB
            found["workers_mb"] = sum(child.memory_full_info().pss for child in jvm.children(recursive=True)) / _MB
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
