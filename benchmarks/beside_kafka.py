"""`python -m benchmarks.beside_kafka [--quick] [--write]`: Spark on Apache Kafka and on Magnetar, as ratios.

In `make bench-kafka KAFKA=<starter>`, the starter is a program that starts an Apache Kafka. Spark is 4.0, like
`CONNECTOR`. Both topics contain the same rows, sent by each system's official Python client in batches of 1,000; this
is verified first. Spark 4.0 has no read limits for Python sources, so both sides read a backlog as one batch.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from tests.connectors.servers import maven
from tests.support.servers import Server, ServerFailed

from . import spark_beside_kafka as measuring
from .apache_kafka import STARTER, ApacheKafka, running, what_is_wrong
from .figure import Figure, Table
from .load import hold
from .paced_publish import KAFKA, OURS
from .plan import Plan
from .real_input import APPLICATION, PLAIN, TYPED, official_input
from .runner import SPARK_KAFKA, add_options, commissioned
from .spark_beside_kafka import OURS_VALUE, Task
from .spark_extra import is_installed, measured

CONNECTOR = ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",)
"""Kafka's source for Spark; later releases for 4.0 have dependencies that are not available everywhere."""
SPARK = (4, 0)
"""Spark version of `CONNECTOR`. There is one for 4.2, but not yet for 4.3."""
ROWS, QUICK_ROWS = 1_000_000, 20_000
PARTITIONS = 2
BATCH = 1000
LIVE, SINGLE = "live", "single"
WITH_SCHEMA = "typed"
FACTOR = 2.0
"""Target share of the rate of Kafka's source in all rows except triggers, which must take less time than Kafka's."""
WARM_S, LIVE_S, SINGLE_S = 4.0, 10.0, 10.0
QUICK_S = 3.0
_NAMES = {PLAIN: "plain", APPLICATION: "application"}


def main() -> int:
    """Start Apache Kafka, measure, print the ratios; return 1 if a measurement failed, 2 for invalid usage."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside_kafka", description=__doc__)
    add_options(parser)
    arguments = parser.parse_args()
    if wrong := what_is_wrong(os.environ) or what_is_missing():
        parser.error(wrong)
    with commissioned(parser, arguments) as commission:
        directory = commission.plan.directory / "apache-kafka"
        directory.mkdir()
        try:
            with running(directory) as kafka:
                wanted = {SPARK_KAFKA: lambda plan: measure(plan, kafka)}
                return 1 if commission.run("kafka", "make bench-kafka KAFKA=<starter> ARGS=--write", wanted) else 0
        except ServerFailed as error:
            print(f"beside_kafka: {error}", file=sys.stderr)
            return 1


def what_is_missing() -> str | None:
    """Return in one line what is missing in this environment or on this machine, or None."""
    from importlib.util import find_spec

    from magnetar.spark.spark_version import installed_spark

    if not is_installed("beside_kafka"):
        return f"Spark is not installed: make bench-kafka KAFKA=<starter> installs it and sets {STARTER}"
    if (found := installed_spark()) != SPARK:
        wanted = ".".join(map(str, SPARK))
        return f"Kafka's source requires Spark {wanted}, but {found} is installed: use make bench-kafka KAFKA=<starter>"
    if find_spec("confluent_kafka") is None:
        return (
            "confluent-kafka, which fills Kafka topics, is not installed: use make bench-kafka KAFKA=<starter>"
            f" ({STARTER})"
        )
    if not maven.is_there():
        return "java or mvn is missing: apt-get install openjdk-17-jre-headless maven"
    return None


def connector_jars() -> list[Path]:
    """Return the jars of Kafka's source that are not part of Spark.

    Raises:
        DownloadFailed: Maven could not download them.
    """
    from magnetar.spark.session import spark_jars

    def names(directory: Path) -> dict[str, Path]:
        return {path.stem.rpartition("-")[0]: path for path in sorted(directory.glob("*.jar"))}

    there = names(spark_jars())
    return [path for name, path in names(maven.jars("spark-kafka", CONNECTOR)).items() if name not in there]


def measure(plan: Plan, kafka: ApacheKafka) -> Iterator[Figure]:
    """Fill topics on both systems, read them with Spark, and return the rows."""
    rows = QUICK_ROWS if plan.is_quick else ROWS
    jars = connector_jars()
    with plan.server("broker") as server:
        for shape in _NAMES:
            fill(plan, server, kafka, shape, rows)
        make_topic(server, WITH_SCHEMA)
        for number in range(PARTITIONS):
            given = official_input(plan, TYPED, BATCH)
            given.fill(server.service_url, f"{WITH_SCHEMA}-partition-{number}", rows // PARTITIONS)
        for topic in (LIVE, SINGLE):
            make_topic(server, topic)
            kafka.create_topic(topic, PARTITIONS)
        directory = plan.directory / "spark-kafka"
        directory.mkdir()
        task = Task(
            directory=str(directory),
            jars=",".join(map(str, jars)),
            addresses={KAFKA: kafka.bootstrap_servers, OURS: server.service_url},
            topics=dict.fromkeys(_NAMES, rows),
            said=APPLICATION,
            typed=WITH_SCHEMA,
            live=LIVE,
            single=SINGLE,
            partitions=PARTITIONS,
            repeats=plan.repeats,
            warm_s=QUICK_S if plan.is_quick else WARM_S,
            live_s=QUICK_S if plan.is_quick else LIVE_S,
            single_s=QUICK_S if plan.is_quick else SINGLE_S,
        )
        found = measured("spark_beside_kafka", task.to_json())
    yield from figures(found, rows)


def make_topic(server: Server, topic: str) -> None:
    """Create a Magnetar topic with `PARTITIONS` partitions that retains its messages."""
    url = f"{server.web_url}/admin/v2/persistent/public/default/{topic}/partitions"
    httpx.put(url, json=PARTITIONS, timeout=30).raise_for_status()
    for number in range(PARTITIONS):
        hold(server.service_url, f"{topic}-partition-{number}", "kept")


def fill(plan: Plan, server: Server, kafka: ApacheKafka, shape: str, rows: int) -> None:
    """Publish the same rows to both systems, the same number to each partition."""
    given = official_input(plan, shape, BATCH)
    make_topic(server, shape)
    kafka.create_topic(shape, PARTITIONS)
    each = rows // PARTITIONS
    messages = given.messages(each)
    for number in range(PARTITIONS):
        given.fill(server.service_url, f"{shape}-partition-{number}", each)
        kafka.fill(shape, number, messages, BATCH)


def figures(found: Mapping[str, Mapping[str, Any]], rows: int) -> Iterator[Figure]:
    """Convert results of `spark_beside_kafka` to rows; pure."""
    many = f"{rows / 1e6:g} million rows"
    for shape, name in _NAMES.items():
        for kind, what in (("count", "count"), ("stream", "stream a backlog of"), ("pandas", "value to pandas of")):
            of_kind = found[f"{kind} {shape}"]
            for side in of_kind:
                if side != KAFKA:
                    columns = "value" if side == OURS_VALUE else "all columns"
                    yield _rate(f"Spark: {what} {many}, {name}, {columns}", of_kind[KAFKA], of_kind[side])
    schema = found["schema"]
    yield replace(
        _rate(f"Spark: three columns of {many} by their schema, JSON", schema[KAFKA], schema[OURS]),
        peer_name="Kafka's source and from_json",
    )
    latency = found["latency"]
    for percentile in ("p50", "p99"):
        yield _time(
            f"Spark: from publish to row at {measuring.RATE:,} rows/s, {percentile}", latency, percentile, FACTOR,
            _each("trigger of {trigger:.0f} ms", latency),
        )  # fmt: skip
    phases = ", ".join(f"{phase} {{{phase}:.0f}}" for phase in measuring.PHASES)
    trigger = found["trigger"]
    yield _time("Spark: trigger with one row", trigger, "trigger", 1.0, _each(phases, trigger) + " (ms)")


def _rate(name: str, kafka: list[float], ours: list[float]) -> Figure:
    by_round = ", ".join(f"{mine / other:.1f}×" for mine, other in zip(ours, kafka, strict=True))
    return Figure(
        name=name,
        ours=statistics.median(ours),
        unit="rows/s",
        peer=statistics.median(kafka),
        peer_name="Kafka's source",
        target_factor=FACTOR,
        note=f"by round {by_round}",
        table=Table.KAFKA,
    )


def _time(name: str, found: Mapping[str, list[dict[str, float]]], key: str, factor: float, note: str) -> Figure:
    kafka, ours = ([one[key] for one in found[side]] for side in (KAFKA, OURS))
    by_round = ", ".join(f"{other / mine:.1f}×" for mine, other in zip(ours, kafka, strict=True))
    return Figure(
        name=name,
        ours=statistics.median(ours),
        unit="ms",
        peer=statistics.median(kafka),
        peer_name="Kafka's source",
        target_factor=factor,
        more_is_better=False,
        note=f"by round {by_round}; {note}",
        table=Table.KAFKA,
    )


def _each(form: str, found: Mapping[str, list[dict[str, float]]]) -> str:
    """Describe the medians of both sides."""
    said = []
    for side, name in ((OURS, "ours"), (KAFKA, "Kafka's")):
        medians = {key: statistics.median(one[key] for one in found[side]) for key in found[side][0]}
        said.append(f"{name}: {form.format(**medians)}")
    return "; ".join(said)


if __name__ == "__main__":
    sys.exit(main())
