"""Drivers of streams from topic to topic that are killed at random moments.

Each row is there exactly once where the plan or an option ensures it, also with another ``minPartitions`` after each
kill, and at least once otherwise.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from tests.spark.spark_cluster import LOCAL
from tests.spark.topics import fill, options_for, values
from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]
ROWS, PER_ENTRY, PARTITIONS, LIMIT, KILLS = 40_000, 50, 2, 2_000, 4
BATCHES = ROWS // LIMIT
STARTS = 10
TOPICS = ("straight", "shuffled", "loose")
WARNING = "writing rows to persistent://public/default/loose at least once"

STREAMS = f"""
import sys, time
from pathlib import Path
from magnetar.spark.session import SessionConfig, open_session

directory, url, admin, tasks, *names = Path(sys.argv[1]), *sys.argv[2:]
settings = {{"spark.sql.shuffle.partitions": "2"}}
config = SessionConfig(directory=directory, master="local[2]", heap="512m", settings=settings)

with open_session(config) as session:
    def stream(name, shape, **order):
        frame = (session.spark.readStream.format("magnetar").option("service.url", url).option("topic", "in")
            .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "{LIMIT}")
            .option("minPartitions", tasks).load().selectExpr("value", "cast(value AS string) AS __key"))
        writer = (shape(frame).writeStream.queryName(name).format("magnetar").options(**order)
            .option("service.url", url).option("admin.url", admin).option("topic", name)
            .option("checkpointLocation", str(directory / f"{{name}}-checkpoint")).trigger(availableNow=True))
        # Spark gives the Python process of a query ten seconds to connect, which is not enough on a busy machine: so
        # queries start one after the other, and one whose process was too slow is started again.
        for _ in range({STARTS}):
            query = writer.start()
            while query.isActive and not query.recentProgress:
                time.sleep(0.01)
            if "Python worker failed to connect back" not in str(query.exception()):
                break
        return query

    shapes = {{
        "straight": (lambda frame: frame.where("length(value) > 0"), {{}}),
        "shuffled": (lambda frame: frame.repartition(2, "__key"), {{"sortBy": "__key"}}),
        "loose": (lambda frame: frame.repartition(2), {{}}),
    }}
    queries = [stream(name, shapes[name][0], **shapes[name][1]) for name in names]
    for query in queries:
        query.awaitTermination()
"""


class Driver:
    """The program in a process of its own; its JVM and workers end with it."""

    def __init__(self, directory: Path, broker: Server, tasks: int, names: Sequence[str] = TOPICS) -> None:
        directory.mkdir(exist_ok=True)
        self._log = directory / "driver.log"
        self._logged = self._log.stat().st_size if self._log.exists() else 0
        addresses = (broker.service_url, broker.web_url)
        command = [sys.executable, "-c", STREAMS, str(directory), *addresses, str(tasks), *names]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=directory, env=dict(LOCAL.environment)
            )

    def wait(self) -> None:
        assert self.process.wait(1200) == 0, self.log_tail

    def runs_for(self, seconds: float) -> bool:
        """Return after so many seconds, or at once if the process has ended, whether it still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is None

    @property
    def log_tail(self) -> str:
        return self._log.read_text()[-3000:]

    def kill(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @property
    def warnings(self) -> int:
        """How often this driver has said that rows are written at least once."""
        return self._log.read_bytes()[self._logged :].count(WARNING.encode())


def planned(directory: Path) -> int:
    """Batches that were begun, of all streams."""
    return sum(1 for name in TOPICS for _ in (directory / f"{name}-checkpoint").glob("offsets/[0-9]*"))


def await_batches(directory: Path, driver: Driver, count: int) -> None:
    wait_for(lambda: planned(directory) >= count or driver.process.poll() is not None, f"{count} batches", 900)


def test_no_row_is_lost_or_repeated_where_order_is_ensured_when_drivers_are_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("MAGNETAR_CRASH_SEED") or random.randrange(1 << 32))
    print(f"seed {seed}")
    chance = random.Random(seed)
    directory = tmp_path / "spark"
    with running("broker", tmp_path / "broker") as broker:
        for topic in ("in", *TOPICS):
            httpx.put(f"{broker.web_url}/admin/v2/persistent/public/default/{topic}/partitions", json=PARTITIONS)
            # Holds what is written until it is compared.
            httpx.put(f"{broker.web_url}/admin/v2/persistent/public/default/{topic}/subscription/all")
        for partition in range(PARTITIONS):
            mine = range(partition, ROWS, PARTITIONS)
            entries = [[b"%d" % row for row in mine[at : at + PER_ENTRY]] for at in range(0, len(mine), PER_ENTRY)]
            fill(broker.service_url, f"in-partition-{partition}", entries)
        for kill in range(KILLS):
            # Another stream is the first to start, and gets most of the batches before the kill.
            first = kill % len(TOPICS)
            driver = Driver(directory, broker, chance.randint(1, 5), TOPICS[first:] + TOPICS[:first])
            try:
                await_batches(directory, driver, planned(directory) + chance.randint(1, BATCHES // KILLS))
                # At a moment of the batch that the offsets of the newest one do not determine.
                assert driver.runs_for(chance.uniform(0, 0.5)), driver.log_tail
            finally:
                driver.kill()
            assert driver.warnings <= 1
        last = Driver(directory, broker, chance.randint(1, 5))
        try:
            last.wait()
        finally:
            last.kill()
        rows = Counter(b"%d" % row for row in range(ROWS))
        for topic in ("straight", "shuffled"):
            assert Counter(values(options_for(broker.service_url, topic))) == rows, topic
        assert set(values(options_for(broker.service_url, "loose"))) == set(rows)
        assert last.warnings == 1
