"""Spark reads from Kafka and from Magnetar alternately, in one session, in a separate process like `spark_read`.

`python -m benchmarks.spark_beside_kafka TASK` takes a `Task` as JSON and prints the results of each measurement, side
and round as JSON. Sides alternate, and each round starts with another one. Rates are measured from the call, so they
include planning. The first rounds of batches are not used, as the JVM compiles and Python workers start meanwhile.
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
"""Magnetar's source with only the required column; Kafka's source has no such option."""
RATE = 10_000
SINGLE_RATE = 2.0
"""Rows per second if each row needs its own trigger."""
HEAP = "2g"
TIMEOUT_S = 120.0
UNMEASURED = 3
"""Number of first rounds of batches that are not used."""
FIRST_TRIGGERS = 3
"""Number of first triggers of a query that are not used."""
_IN_JSON = "id BIGINT, user STRING, note STRING"
_OF_COLUMNS = ("count(id)", "sum(id)", "max(user)", "sum(length(note))")
PHASES = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets")


@dataclass(frozen=True, kw_only=True)
class Task:
    """Configuration of the measurements.

    Attributes:
        directory: directory for checkpoints and Spark's files.
        jars: Kafka's source, as value of `spark.jars`.
        addresses: addresses of both systems, by `KAFKA` and `OURS`.
        topics: filled topics, with their numbers of rows.
        said: the one of these topics with JSON values.
        typed: a Magnetar topic with the same values and a schema.
        live, single: topics to which rows are published meanwhile, with `partitions` each.
        partitions: number of partitions.
        repeats: number of measured rounds.
        warm_s: seconds of warm-up at a constant rate.
        live_s: seconds of measurement at a constant rate.
        single_s: seconds of rows with one trigger each.
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
        """Serialise the configuration for the command line."""
        return json.dumps(asdict(self))


class Measuring:
    """Measurements in one session."""

    def __init__(self, spark: SparkSession, task: Task) -> None:
        self._spark = spark
        self._task = task
        self._said: tuple[Any, ...] | None = None  # result of the first query of `_by_schema`

    def run(self) -> dict[str, Any]:
        """Run all measurements, and return the results."""
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

    # -- queries on both sides --------------------------------------------------------------------------------------

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
        """Raise AssertionError unless both sides have the same values, in the expected number."""
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
        """Return rows per second with columns decoded from values: by our schema, or by `from_json`."""
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
        """Return rows per second of the triggers of a query that reads the backlog."""
        with self._query(self._stream(side, topic, "earliest"), {"availableNow": True}) as query:
            assert query.awaitTermination(TIMEOUT_S), f"{side}: not done after {TIMEOUT_S:g} s"
            batches = _batches(query)
        rows: int = sum(batch["numInputRows"] for batch in batches)
        assert rows == self._task.topics[topic], (side, rows)
        took_ms: float = sum(batch["durationMs"]["triggerExecution"] for batch in batches)
        return 1000 * rows / took_ms

    # -- streams with a concurrent publisher ------------------------------------------------------------------------

    def _latency(self, side: str) -> dict[str, float]:
        """Return percentiles of the time from publishing a row until `foreachBatch` has it from Arrow, in ms."""
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
        """Return the median duration of triggers with one row each, and of their phases, in ms."""
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
        """Publish single rows until the query has received one, as it only waits for more after that."""
        deadline = time.monotonic() + TIMEOUT_S
        while not is_there():
            if query.exception() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{side}: received no row of {topic}: {query.exception()}")
            self._publish(side, topic, RATE, 1)
            query.processAllAvailable()

    def _publish(self, side: str, topic: str, rate: float, count: int) -> None:
        """Publish rows in a separate process, and wait until they are stored."""
        arguments = (side, self._task.addresses[side], topic, self._task.partitions, rate, count)
        command = [sys.executable, "-m", "benchmarks.paced_publish", *map(str, arguments)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=TIMEOUT_S + count / rate)
        if count > 1 and float(done.stdout) < 0.95 * rate:
            raise RuntimeError(f"{side}: published {float(done.stdout):,.0f} rows/s instead of {rate:,.0f}")

    @contextmanager
    def _query(
        self, stream: DataFrame, trigger: Mapping[str, Any], take: Callable[[DataFrame, int], None] | None = None
    ) -> Iterator[Any]:
        """Provide a query with a separate checkpoint, without a sink unless a batch function is given; stop it at the
        end.
        """
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
    """Return the progress of triggers with rows."""
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def _median(batches: Sequence[Any], phase: str) -> float:
    return float(statistics.median(batch["durationMs"].get(phase, 0) for batch in batches))


def main(task: Task) -> None:
    """Measure in this process, and print JSON."""
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
