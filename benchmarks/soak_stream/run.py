"""The phases of a stream soak: rows are published, streams process them, and processes are killed repeatedly."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pyarrow as pa
import pyarrow.parquet
from magnetar.spark.source.columns import read_range
from magnetar.spark.spark_version import installed_spark

from tests.connectors.servers import maven
from tests.spark.spark_cluster import WORKERS, SparkCluster, spark_cluster
from tests.spark.test_lakes import LAKES, beside_spark
from tests.spark.topics import fill, options_for, planned, publish
from tests.support.servers import Server, running
from tests.support.waiting import wait_for

from ..soak.report import Verdict
from .program import COPIES, IN, LAKE_ROWS, TOTALS, Task
from .rows import LAST, Rows

PARTITIONS = 4
BATCHES_PER_KILL = 3
PAUSE_S_MAX = 2.0
"""Maximum pause before a kill, after the batch that it waits for, in seconds."""
PROGRESS_S = 300.0
"""Time limit for completing the next batch after any kill, in seconds."""
DELTA = "delta"
READ_RANGES = 16


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    Attributes:
        rows: number of rows.
        kills: total number of kills.
        seed: seed of the rows, and of the order and times of kills.
    """

    rows: int
    kills: int
    seed: int


class Driver:
    """The driver program; its JVM ends with it."""

    def __init__(self, task: Task, environment: dict[str, str]) -> None:
        self.log = Path(task.directory) / "driver.log"
        command = [sys.executable, "-m", "benchmarks.soak_stream.program", task.to_json()]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def has_ended(self) -> bool:
        """Return whether it has processed all rows.

        Raises:
            RuntimeError: the program failed.
        """
        code = self.process.poll()
        if code:
            raise RuntimeError(f"the driver exited with code {code}; see {self.log}")
        return code == 0

    def kill(self) -> None:
        """Kill it like a crash would, and wait until it has ended."""
        self.process.kill()
        self.process.wait()


class StreamSoak:
    """A run of the soak."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self._settings = settings
        self._directory = directory
        self._chance = random.Random(settings.seed)
        self._rows = Rows.by_chance(settings.rows, settings.seed)
        self._killed: list[str] = []

    def run(self) -> Verdict:
        """Run all phases.

        Raises:
            Exception: a stream failed or got stuck.
        """
        spark_directory = self._directory / "cluster"
        spark_directory.mkdir()
        with ExitStack() as stack:
            broker = stack.enter_context(running("broker", self._directory / "broker"))
            self._fill(broker)
            cluster = stack.enter_context(spark_cluster(spark_directory))
            task = self._task(broker, cluster)
            seconds = Course(self._settings.kills, task, broker, cluster, self._chance, self._killed).run()
            return self._verdict(task, broker, seconds)

    def _fill(self, broker: Server) -> None:
        make_topics(broker)
        for partition in range(PARTITIONS):
            entries = self._rows.entries(partition, PARTITIONS)
            fill(broker.service_url, f"{IN}-partition-{partition}", entries)
        publish(broker.service_url, f"{IN}-partition-0", LAST)
        print(f"published {self._settings.rows} rows to topic {IN} with {PARTITIONS} partitions", flush=True)

    def _task(self, broker: Server, cluster: SparkCluster) -> Task:
        lake = self._lake()
        return Task(
            directory=str(self._directory),
            master=cluster.master,
            settings={**cluster.as_master().settings, "spark.sql.shuffle.partitions": "2", **lake},
            service_url=broker.service_url,
            web_url=broker.web_url,
            rows_per_batch=-(-self._settings.rows // (max(self._settings.kills, 1) * BATCHES_PER_KILL)),
            has_lake=bool(lake),
        )

    def _lake(self) -> dict[str, str]:
        """Return the settings for Delta tables; empty if this Spark version has none."""
        lake, spark = LAKES[DELTA], installed_spark()
        if spark not in lake.packages:
            print(f"Delta has no package for Spark {spark}: using only topics", flush=True)
            return {}
        jars = beside_spark(maven.jars(f"{DELTA}-spark-{spark[0]}.{spark[1]}", [lake.packages[spark]]))
        return {
            **lake.settings,
            "spark.sql.extensions": lake.extension,
            "spark.jars": ",".join(map(str, jars)),
        }

    def _verdict(self, task: Task, broker: Server, seconds: float) -> Verdict:
        verdict = Verdict()
        kills, streams = self._settings.kills, len(task.streams())
        rate = self._settings.rows * streams / seconds
        verdict.notes.append(f"{batches(task)} batches of {streams} streams in {seconds:.0f} s, {rate:,.0f} rows/s")
        killed = f"{len(self._killed)} of {kills}: {', '.join(self._killed)}"
        verdict.compare("kills", killed, len(self._killed) == kills)
        found = _read(broker, TOTALS, "value", "__key")
        totals = dict(zip(found["__key"].to_pylist(), found["value"].to_pylist(), strict=True))
        expected = {key.encode(): b'{"count":%d,"sum":%d}' % total for key, total in self._rows.totals().items()}
        wrong = sum(totals.get(key) != value for key, value in expected.items())
        beside = len(totals.keys() - expected.keys())
        twice = len(found) - len(totals)
        said = f"{len(expected)} windows by key; {wrong} missing or wrong, {twice} repeated, {beside} unexpected"
        verdict.compare(f"topic {TOTALS} against a recount", said, not wrong and not twice and not beside)
        self._compare(verdict, f"topic {COPIES}", _read(broker, COPIES, "value")["value"])
        if task.has_lake:
            rows = pyarrow.parquet.read_table(self._directory / LAKE_ROWS)["value"]
            self._compare(verdict, "Delta table", rows)
        return verdict

    def _compare(self, verdict: Verdict, name: str, values: pa.ChunkedArray) -> None:
        wrong = self._rows.differences(values)
        verdict.compare(name, "; ".join(wrong) or f"{len(values)} rows, each once", not wrong)


class Course:
    """The phase in which the streams run and processes are killed."""

    def __init__(
        self, kills: int, task: Task, broker: Server, cluster: SparkCluster, chance: random.Random, killed: list[str]
    ) -> None:
        self._kills = kills
        self._task = task
        self._broker = broker
        self._cluster = cluster
        self._chance = chance
        self._killed = killed
        self._environment = {**os.environ, **cluster.environment}
        self._driver = Driver(task, self._environment)

    def run(self) -> float:
        """Run the phase, and return its duration in seconds."""
        begun_s = time.monotonic()
        try:
            for what in self._victims():
                self._await_batches(batches(self._task) + self._chance.randint(1, BATCHES_PER_KILL))
                with suppress(subprocess.TimeoutExpired):
                    self._driver.process.wait(self._chance.uniform(0, PAUSE_S_MAX))
                if self._driver.has_ended():
                    break
                print(f"{time.monotonic() - begun_s:.0f} s, {batches(self._task)} batches: kill {what}", flush=True)
                self._kill(what)
                self._killed.append(what)
            while not self._driver.has_ended():
                self._await_batches(batches(self._task) + 1)
        finally:
            self._driver.kill()
        return time.monotonic() - begun_s

    def _victims(self) -> Iterator[str]:
        """Yield kinds of processes to kill: each kind once per cycle, in random order."""
        kinds = ["driver", "executor", "broker", "worker"]
        for number in range(self._kills):
            if number % len(kinds) == 0:
                self._chance.shuffle(kinds)
            yield kinds[number % len(kinds)]

    def _await_batches(self, count: int) -> None:
        wait_for(
            lambda: batches(self._task) >= count or self._driver.has_ended(),
            f"batch {count}; see {self._driver.log}",
            PROGRESS_S,
        )

    def _kill(self, what: str) -> None:
        if what == "driver":
            self._driver.kill()
            self._driver = Driver(self._task, self._environment)
        elif what == "broker":
            self._broker.kill()
            self._broker.restart()
        elif what == "worker":
            self._cluster.restart_worker(self._chance.randrange(WORKERS))
        else:
            wait_for(lambda: self._cluster.executors() or self._driver.has_ended(), "an executor", PROGRESS_S)
            with suppress(psutil.NoSuchProcess, IndexError):
                self._chance.choice(self._cluster.executors()).kill()


def make_topics(broker: Server) -> None:
    """Create the topics with unlimited retention."""
    for topic in (IN, TOTALS, COPIES):
        url = f"{broker.web_url}/admin/v2/persistent/public/default/{topic}"
        httpx.put(f"{url}/partitions", json=PARTITIONS).raise_for_status()
        httpx.put(f"{url}/subscription/all").raise_for_status()


def batches(task: Task) -> int:
    """Return the number of completed batches of all streams."""
    return sum(1 for name in task.streams() for _ in task.checkpoint(name).glob("commits/[0-9]*"))


def _read(broker: Server, topic: str, *columns: str) -> pa.Table:
    options = options_for(broker.service_url, topic, columns=",".join(columns))
    found = [batch for wanted in planned(options, READ_RANGES) for batch in read_range(wanted, options)]
    return pa.Table.from_batches(found)
