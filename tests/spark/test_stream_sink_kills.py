"""Drivers of streams from topic to topic that are killed at random moments: each row is there exactly once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.spark.spark_cluster import LOCAL
from tests.spark.topics import fill, options_for, values
from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(1200)]
ROWS, PER_ENTRY, PARTITIONS, LIMIT, KILLS = 40_000, 50, 2, 2_000, 4
BATCHES = ROWS // LIMIT

STREAMS = f"""
import sys
from pathlib import Path
from magnetar.spark.session import SessionConfig, open_session

directory, url, admin = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
settings = {{"spark.sql.shuffle.partitions": "2"}}
config = SessionConfig(directory=directory, master="local[2]", heap="512m", settings=settings)

with open_session(config) as session:
    def stream(name, shape, **order):
        frame = (session.spark.readStream.format("magnetar").option("service.url", url).option("topic", "in")
            .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "{LIMIT}")
            .option("minPartitions", "2").load().selectExpr("value", "cast(value AS string) AS __key"))
        return (shape(frame).writeStream.queryName(name).format("magnetar").options(**order)
            .option("service.url", url).option("admin.url", admin).option("topic", name)
            .option("checkpointLocation", str(directory / f"{{name}}-checkpoint")).trigger(availableNow=True).start())

    queries = [
        stream("straight", lambda frame: frame, unshuffled="true"),
        stream("shuffled", lambda frame: frame.repartition(2, "__key"), sortBy="__key"),
    ]
    for query in queries:
        query.awaitTermination()
"""


class Driver:
    """The program in a process of its own; its JVM and workers end with it."""

    def __init__(self, directory: Path, broker: Server) -> None:
        directory.mkdir(exist_ok=True)
        self._log = directory / "driver.log"
        command = [sys.executable, "-c", STREAMS, str(directory), broker.service_url, broker.web_url]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=directory, env=dict(LOCAL.environment)
            )

    def wait(self) -> None:
        assert self.process.wait(600) == 0, self._log.read_text()[-3000:]

    def kill(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()


def planned(directory: Path) -> int:
    """Batches that were begun, of both streams."""
    return sum(
        1 for name in ("straight", "shuffled") for _ in (directory / f"{name}-checkpoint").glob("offsets/[0-9]*")
    )


def await_batches(directory: Path, driver: Driver, count: int) -> None:
    wait_for(lambda: planned(directory) >= count or driver.process.poll() is not None, f"{count} batches", 300)


def test_topics_of_streams_whose_drivers_were_killed_hold_each_row_once(tmp_path: Path) -> None:
    seed = int(os.environ.get("MAGNETAR_CRASH_SEED") or random.randrange(1 << 32))
    print(f"seed {seed}")
    chance = random.Random(seed)
    directory = tmp_path / "spark"
    with running("broker", tmp_path / "broker") as broker:
        for topic in ("in", "straight", "shuffled"):
            httpx.put(f"{broker.web_url}/admin/v2/persistent/public/default/{topic}/partitions", json=PARTITIONS)
            # Holds what is written until it is compared.
            httpx.put(f"{broker.web_url}/admin/v2/persistent/public/default/{topic}/subscription/all")
        for partition in range(PARTITIONS):
            mine = range(partition, ROWS, PARTITIONS)
            entries = [[b"%d" % row for row in mine[at : at + PER_ENTRY]] for at in range(0, len(mine), PER_ENTRY)]
            fill(broker.service_url, f"in-partition-{partition}", entries)
        for _ in range(KILLS):
            driver = Driver(directory, broker)
            try:
                await_batches(directory, driver, planned(directory) + chance.randint(1, BATCHES // KILLS))
                # At a moment of the batch that the offsets of the newest one do not determine.
                with pytest.raises(subprocess.TimeoutExpired):
                    driver.process.wait(chance.uniform(0, 0.5))
            finally:
                driver.kill()
        last = Driver(directory, broker)
        try:
            last.wait()
        finally:
            last.kill()
        rows = Counter(b"%d" % row for row in range(ROWS))
        for topic in ("straight", "shuffled"):
            assert Counter(values(options_for(broker.service_url, topic))) == rows, topic
