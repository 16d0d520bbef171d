"""Reads of Spark from Kafka and from us in turn, in one session; a process of its own, as `spark_read`.

`python -m benchmarks.spark_beside_kafka TASK` takes a `Task` as JSON and prints JSON: of each measurement and side what
each round gave. Sides take turns, and each round begins with another one. What is a rate here counts from the call, so
plans are in it; the first rounds of batches are left out, for the JVM compiles and Python workers start meanwhile.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.waiting import wait_for

from .paced_publish import KAFKA, OURS, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS_VALUE = "magnetar, value"
"""Ours with the one column that is needed: Kafka's source has no such option."""
RATE = 10_000
SINGLE_RATE = 2.0
"""Rows a second where each is to have a trigger of its own."""
HEAP = "2g"
TIMEOUT_S = 120.0
UNMEASURED = 3
"""Rounds of batches that are left out."""
FIRST_TRIGGERS = 3
"""Triggers that are left out: queries begin with them."""
_IN_JSON = "id BIGINT, user STRING, note STRING"
_OF_COLUMNS = ("count(id)", "sum(id)", "max(user)", "sum(length(note))")
PHASES = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets")


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is measured.

    Attributes:
        directory: of checkpoints and Spark's files.
        jars: Kafka's source, as `spark.jars` takes it.
        addresses: of both systems, by `KAFKA` and `OURS`.
        topics: that are full, with the number of their rows.
        said: of them the one whose values are JSON.
        typed: a topic of ours with the same values under their schema.
        live, single: topics that rows are published to meanwhile, `partitions` each.
        partitions: see there.
        repeats: rounds that count.
        warm_s: of rows at an even rate, before those that count.
        live_s: of those that count.
        single_s: of rows with a trigger each.
    """

    directory: str
    jars: str
    addresses: Mapping[str, str]
    topics: Mapping[str, int]
    said: str
    typed: str
    live: str
    single: str
    partitions: int
    repeats: int
    warm_s: float
    live_s: float
    single_s: float

    def to_json(self) -> str:
        """Return it as the program takes it."""
        return json.dumps(asdict(self))


class Measuring:
    """The measurements, in one session."""

    def __init__(self, spark: SparkSession, task: Task) -> None:
        self._spark = spark
        self._task = task
        self._said: tuple[Any, ...] | None = None  # what the first query of `_by_schema` found

    def run(self) -> dict[str, Any]:
        """Return what was found, see the module."""
        found: dict[str, Any] = {}
        for topic, rows in self._task.topics.items():
            self._compare(topic, rows)
            for kind, sides, measure in (
                ("count", (KAFKA, OURS, OURS_VALUE), self._count),
                ("stream", (KAFKA, OURS, OURS_VALUE), self._drain),
                ("pandas", (KAFKA, OURS_VALUE), self._to_pandas),
            ):
                found[f"{kind} {topic}"] = self._rounds(sides, partial(measure, topic), UNMEASURED)
        found["schema"] = self._rounds((KAFKA, OURS), self._by_schema, UNMEASURED)
        found["latency"] = self._rounds((KAFKA, OURS), self._latency)
        found["trigger"] = self._rounds((KAFKA, OURS), self._trigger)
        return found

    def _rounds(self, sides: Sequence[str], measure: Callable[[str], Any], unmeasured: int = 0) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {side: [] for side in sides}
        for turn in range(unmeasured + self._task.repeats):
            first = turn % len(sides)
            for side in (*sides[first:], *sides[:first]):
                outcome = measure(side)
                if turn >= unmeasured:
                    found[side].append(outcome)
        return found

    # -- what both sides are asked ---------------------------------------------------------------------------------

    def _options(self, side: str, topic: str) -> tuple[str, dict[str, str]]:
        if side == KAFKA:
            return "kafka", {"kafka.bootstrap.servers": self._task.addresses[KAFKA], "subscribe": topic}
        options = {"service.url": self._task.addresses[OURS], "topic": topic}
        return "magnetar", options | ({"columns": "value"} if side == OURS_VALUE else {})

    def _frame(self, side: str, topic: str) -> DataFrame:
        form, options = self._options(side, topic)
        return self._spark.read.format(form).options(**options).load()

    def _stream(self, side: str, topic: str, start: str) -> DataFrame:
        form, options = self._options(side, topic)
        return self._spark.readStream.format(form).options(**options, startingOffsets=start).load()

    def _compare(self, topic: str, rows: int) -> None:
        """Raise AssertionError unless both have the same values, so many."""
        query = ("count(value)", "sum(length(value))", "sum(cast(xxhash64(value) AS decimal(38, 0)))")
        kafka, ours = (tuple(self._frame(side, topic).selectExpr(*query).collect()[0]) for side in (KAFKA, OURS))
        assert kafka == ours, (topic, kafka, ours)
        assert kafka[0] == rows, (topic, kafka, rows)

    def _count(self, topic: str, side: str) -> float:
        began = time.perf_counter()
        rows: int = self._frame(side, topic).count()
        took_s = time.perf_counter() - began
        assert rows == self._task.topics[topic], (side, rows)
        return rows / took_s

    def _to_pandas(self, topic: str, side: str) -> float:
        began = time.perf_counter()
        rows = len(self._frame(side, topic).select("value").toPandas())
        took_s = time.perf_counter() - began
        assert rows == self._task.topics[topic], (side, rows)
        return rows / took_s

    def _by_schema(self, side: str) -> float:
        """Return rows per second whose columns are what their values say: by our schema, or by `from_json`."""
        task = self._task
        began = time.perf_counter()
        if side == KAFKA:
            values = self._frame(KAFKA, task.said).selectExpr(f"from_json(cast(value AS STRING), '{_IN_JSON}') AS row")
            frame = values.select("row.*")
        else:
            form, options = self._options(OURS, task.typed)
            options |= {"useTopicSchema": "true", "columns": "id,user,note"}
            frame = self._spark.read.format(form).options(**options).load()
        found = tuple(frame.selectExpr(*_OF_COLUMNS).collect()[0])
        took_s = time.perf_counter() - began
        rows = task.topics[task.said]
        assert found[0] == rows, (side, found)
        self._said = self._said or found
        assert found == self._said, (side, found, self._said)
        return rows / took_s

    def _drain(self, topic: str, side: str) -> float:
        """Return rows per second of the triggers of a query that reads what is there."""
        with self._query(self._stream(side, topic, "earliest"), {"availableNow": True}) as query:
            assert query.awaitTermination(TIMEOUT_S), f"{side}: not done after {TIMEOUT_S:g} s"
            batches = _batches(query)
        rows: int = sum(batch["numInputRows"] for batch in batches)
        assert rows == self._task.topics[topic], (side, rows)
        took_ms: float = sum(batch["durationMs"]["triggerExecution"] for batch in batches)
        return 1000 * rows / took_ms

    # -- streams beside a publisher --------------------------------------------------------------------------------

    def _latency(self, side: str) -> dict[str, float]:
        """Return percentiles of the ms from the call that publishes a row until `foreachBatch` has it from Arrow."""
        task = self._task
        seen: list[tuple[int, Any]] = []

        def take(frame: DataFrame, _batch: int) -> None:
            values = frame.select("value").toArrow().column(0)
            seen.append((time.time_ns(), values))

        count = int(RATE * (task.warm_s + task.live_s))
        stream = self._stream(side, task.live, "latest")
        with self._query(stream, {"processingTime": "0 seconds"}, take) as query:
            self._first_row(side, task.live, query, lambda: bool(seen))
            waiting = len(seen)
            self._publish(side, task.live, RATE, count)
            wait_for(lambda: sum(len(values) for _, values in seen[waiting:]) >= count, f"{count} rows", TIMEOUT_S)
            batches = _batches(query)[-len(seen) + waiting :]
        late_ms = []
        numbers: set[int] = set()
        for at_ns, values in seen[waiting:]:
            for number, sent_ns in map(parse, values.to_pylist()):
                numbers.add(number)
                if number >= RATE * task.warm_s:
                    late_ms.append((at_ns - sent_ns) / 1e6)
        assert numbers == set(range(count)), (side, len(numbers), count)
        cut = statistics.quantiles(late_ms, n=100)
        return {
            "p50": cut[49],
            "p99": cut[98],
            "batches": len(batches),
            "trigger": _median(batches, "triggerExecution"),
        }

    def _trigger(self, side: str) -> dict[str, float]:
        """Return the median ms of triggers that have a row each, and of their phases."""
        task = self._task
        stream = self._stream(side, task.single, "latest")
        with self._query(stream, {"processingTime": "0 seconds"}) as query:
            self._first_row(side, task.single, query, lambda: bool(_batches(query)))
            count = int(SINGLE_RATE * task.single_s)
            before = sum(batch["numInputRows"] for batch in _batches(query))
            self._publish(side, task.single, SINGLE_RATE, count)
            wait_for(
                lambda: sum(batch["numInputRows"] for batch in _batches(query)) >= before + count,
                f"{count} rows", TIMEOUT_S,
            )  # fmt: skip
            batches = _batches(query)[FIRST_TRIGGERS:]
        return {
            "trigger": _median(batches, "triggerExecution"),
            "batches": len(batches),
            **{phase: _median(batches, phase) for phase in PHASES},
        }

    def _first_row(self, side: str, topic: str, query: Any, is_there: Callable[[], bool]) -> None:
        """Publish rows, one by one, until the query has had one: only then it has begun to wait for more."""
        deadline = time.monotonic() + TIMEOUT_S
        while not is_there():
            if query.exception() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{side}: no row of {topic}: {query.exception()}")
            self._publish(side, topic, RATE, 1)
            query.processAllAvailable()

    def _publish(self, side: str, topic: str, rate: float, count: int) -> None:
        """Have a process of its own publish rows, and return when they are stored."""
        arguments = (side, self._task.addresses[side], topic, self._task.partitions, rate, count)
        command = [sys.executable, "-m", "benchmarks.paced_publish", *map(str, arguments)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=TIMEOUT_S + count / rate)
        if count > 1 and float(done.stdout) < 0.95 * rate:
            raise RuntimeError(f"{side}: {float(done.stdout):,.0f} rows/s were published, not {rate:,.0f}")

    @contextmanager
    def _query(
        self, stream: DataFrame, trigger: Mapping[str, Any], take: Callable[[DataFrame, int], None] | None = None
    ) -> Iterator[Any]:
        """A query with a checkpoint of its own, to nowhere unless something takes its batches; stopped at the end."""
        checkpoint = Path(self._task.directory) / "checkpoints" / uuid.uuid4().hex
        writer = stream.writeStream.option("checkpointLocation", str(checkpoint)).trigger(**trigger)
        query = (writer.format("noop") if take is None else writer.foreachBatch(take)).start()
        try:
            yield query
        finally:
            query.stop()
        if query.exception() is not None:
            raise RuntimeError(f"a stream failed: {query.exception()}")


def _batches(query: Any) -> list[Any]:
    """Return the progress of the triggers that had rows."""
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def _median(batches: Sequence[Any], phase: str) -> float:
    return float(statistics.median(batch["durationMs"].get(phase, 0) for batch in batches))


def main(task: Task) -> None:
    """Measure in this process; print JSON."""
    from magnetar.spark.session import SessionConfig, open_session

    directory = Path(task.directory)
    settings = {
        "spark.jars": task.jars,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.streaming.numRecentProgressUpdates": "2000",
    }
    config = SessionConfig(
        directory=directory, master="local[2]", heap=HEAP, settings=settings, log_file=directory / "jvm.log"
    )
    with open_session(config) as session:
        found = Measuring(session.spark, task).run()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Task(**json.loads(sys.argv[1])))
