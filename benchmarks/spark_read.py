"""Throughput of reading a topic with Spark's data source, compared with a reader loop on the official client.

PySpark changes its process, so it runs in a separate one: `python -m benchmarks.spark_read URL REPEATS TOPIC …` prints
its measurements as JSON. There is a topic for each input: the official client's two shapes, and our own encoder's.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pulsar

from .figure import Figure, Table
from .load import hold, official, payloads_of, publish_repeated
from .plan import Plan
from .real_input import OWN, SHAPES, official_input
from .spark_extra import is_installed, measured

MESSAGES = {**dict.fromkeys(SHAPES, 1_000_000), OWN: 10_000_000}
QUICK_MESSAGES = 500_000
LOOP_MESSAGES = 200_000
SIZE_BYTES = 100
TARGET = 1_000_000
LOOP_FACTOR = 3  # target relative to the official loop, both on our own encoder's input
VALUE, ALL_COLUMNS = "value", "all columns"
_BATCH = 1000
_MIB = 1024 * 1024


def measure_spark(plan: Plan) -> Iterator[Figure]:
    """Measure session start, memory, and reading and counting rows."""
    if not is_installed("spark"):
        return
    counts = {name: QUICK_MESSAGES if plan.repeats == 1 else MESSAGES[name] for name in MESSAGES}
    topics = {name: f"backlog-{number}" for number, name in enumerate(counts)}
    with plan.server("broker") as server:
        for name, topic in topics.items():
            hold(server.service_url, topic, "kept")
            if name == OWN:
                lines = payloads_of(SIZE_BYTES, _BATCH)
                publish_repeated(server.service_url, topic, lines, counts[name] // _BATCH)
            else:
                official_input(plan, name, _BATCH).fill(server.service_url, topic, counts[name])
        loop = {
            name: statistics.median(_official(server.service_url, topic) for _ in range(plan.repeats))
            for name, topic in topics.items()
        }
        found = measured("spark_read", server.service_url, plan.repeats, *topics.values())
    yield Figure(
        name="Spark: session start, JVM included",
        ours=found["start_s"],
        unit="s",
        more_is_better=False,
        note=f"first count after another {found['first_s']:.1f} s",
    )
    for name, topic in topics.items():
        assert found[topic]["rows"] == counts[name]
        yield from _read_figures(name, counts[name], found[topic], loop[name])
    for process, what in (("driver", "the driver"), ("jvm", "the JVM"), ("workers", "all Python workers")):
        yield Figure(
            name=f"Spark: memory of {what} after reading (PSS)",
            ours=found[f"{process}_mib"],
            unit="MiB",
            more_is_better=False,
            note=found.get(f"{process}_note", ""),
        )


def _read_figures(name: str, count: int, took_s: Mapping[str, float], loop: float) -> Iterator[Figure]:
    table = Table.OWN if name == OWN else Table.OFFICIAL
    for columns in (VALUE, ALL_COLUMNS):
        yield Figure(
            name=f"Spark: read and count {count / 1e6:g} million messages, {name}, {columns}",
            ours=count / took_s[columns],
            unit="rows/s",
            peer=loop,
            peer_name="reader loop on the official client",
            target=TARGET if name == OWN else None,
            table=table,
        )
    if name == OWN:
        yield Figure(
            name=f"Spark: read and count over the official reader loop, {name}, {ALL_COLUMNS}",
            ours=count / took_s[ALL_COLUMNS] / loop,
            unit="times",
            target=LOOP_FACTOR,
            table=table,
        )


def _official(service_url: str, topic: str) -> float:
    """Return messages per second of a loop as a user would write it."""
    client = official(service_url)
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=10_000)
        reader.read_next(10_000).data()
        began = time.perf_counter()
        total_bytes = 0
        for _ in range(LOOP_MESSAGES):
            total_bytes += len(reader.read_next(10_000).data())
        took_s = time.perf_counter() - began
        assert total_bytes
        return LOOP_MESSAGES / took_s
    finally:
        client.close()


def main(service_url: str, repeats: int, topics: list[str]) -> None:
    """Measure in this process, and print JSON."""
    from magnetar.spark.session import SessionConfig, open_session

    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        config = SessionConfig(directory=Path(directory), master="local[2]", log_file=Path(directory) / "jvm.log")
        with open_session(config) as session:
            found["start_s"] = time.perf_counter() - began
            source = session.spark.read.format("magnetar").option("service.url", service_url)
            for topic in topics:
                everything = source.load(topic)
                began = time.perf_counter()
                found[topic] = {"rows": everything.count()}
                found.setdefault("first_s", time.perf_counter() - began)
                value = session.spark.read.format("magnetar").option("service.url", service_url)
                value = value.option("columns", "value")
                for name, frame in ((VALUE, value.load(topic)), (ALL_COLUMNS, everything)):
                    took = []
                    for _ in range(repeats):
                        began = time.perf_counter()
                        assert frame.count() == found[topic]["rows"]
                        took.append(time.perf_counter() - began)
                    found[topic][name] = statistics.median(took)
            jvm = psutil.Process(session.pid)
            workers = jvm.children(recursive=True)
            found["driver_mib"] = psutil.Process(os.getpid()).memory_full_info().pss / _MIB
            found["jvm_mib"] = jvm.memory_full_info().pss / _MIB
            found["jvm_note"] = f"heap of at most {config.heap}"
            found["workers_mib"] = sum(child.memory_full_info().pss for child in workers) / _MIB
            found["workers_note"] = f"{len(workers)} processes, their parent included"
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
