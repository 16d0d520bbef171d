"""Drivers of streams that die in the middle, and go on from their checkpoints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.spark_cluster import LOCAL
from tests.spark.topics import fill
from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
ROWS, PER_ENTRY, PARTITIONS, LIMIT = 12_000, 50, 2, 1_000
BATCHES = ROWS // LIMIT

STREAMS = f"""
import json, sys
from pathlib import Path
from magnetar.spark.session import SessionConfig, open_session

directory, url = Path(sys.argv[1]), sys.argv[2]

def keep(frame, number):
    rows = sorted(int(bytes(row["value"])) for row in frame.select("value").collect())
    (directory / "each" / f"{{number}}.json").write_text(json.dumps(rows))  # the same name, so the same rows once

with open_session(SessionConfig(directory=directory, master="local[2]", heap="512m")) as session:
    (directory / "each").mkdir(exist_ok=True)

    def stream(name):
        return (session.spark.readStream.format("magnetar").option("service.url", url).option("topic", "in")
            .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "{LIMIT}")
            .option("predefinedSubscription", name).load().select("value")
            .writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(directory / f"{{name}}-checkpoint")))

    files = stream("files").format("parquet").start(str(directory / "files"))
    each = stream("each").foreachBatch(keep).start()
    for query in (files, each):
        query.awaitTermination()
    found = session.spark.read.parquet(str(directory / "files")).collect()
    (directory / "files.json").write_text(json.dumps(sorted(int(bytes(row["value"])) for row in found)))
"""


class Driver:
    """The program in a process of its own; its JVM and workers end with it."""

    def __init__(self, directory: Path, broker: Server) -> None:
        directory.mkdir(exist_ok=True)
        self._log = directory / "driver.log"
        command = [sys.executable, "-c", STREAMS, str(directory), broker.service_url]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=directory, env=dict(LOCAL.environment)
            )

    def wait(self) -> None:
        assert self.process.wait(400) == 0, self.said()

    def said(self) -> str:
        """What it logged, without the stacks of Java."""
        lines = self._log.read_text().splitlines()
        return "\n".join(line for line in lines if not line.lstrip().startswith(("at ", "... ")))[-5000:]

    def kill(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()


def committed(directory: Path) -> int:
    return min(len([*(directory / f"{name}-checkpoint" / "commits").glob("[0-9]*")]) for name in ("files", "each"))


def test_streams_whose_driver_was_killed_have_each_row_once(tmp_path: Path) -> None:
    directory = tmp_path / "spark"
    with running("broker", tmp_path / "broker") as broker:
        import httpx

        httpx.put(f"{broker.web_url}/admin/v2/persistent/public/default/in/partitions", json=PARTITIONS)
        for partition in range(PARTITIONS):
            mine = range(partition, ROWS, PARTITIONS)
            entries = [[b"%d" % row for row in mine[at : at + PER_ENTRY]] for at in range(0, len(mine), PER_ENTRY)]
            fill(broker.service_url, f"in-partition-{partition}", entries)
        driver = Driver(directory, broker)
        try:
            wait_for(lambda: committed(directory) >= 2 or driver.process.poll() is not None, "two batches", 300)
            assert driver.process.poll() is None, driver.said()
        finally:
            driver.kill()
        assert 2 <= committed(directory) < BATCHES
        last = Driver(directory, broker)
        try:
            last.wait()
        finally:
            last.kill()
        stats = httpx.get(f"{broker.web_url}/admin/v2/persistent/public/default/in/partitioned-stats").json()
    assert json.loads((directory / "files.json").read_text()) == list(range(ROWS))
    batches = [json.loads(file.read_text()) for file in (directory / "each").glob("*.json")]
    assert sorted(row for batch in batches for row in batch) == list(range(ROWS))
    assert {len(batch) for batch in batches} == {LIMIT}
    assert {name: one["msgBacklog"] for name, one in stats["subscriptions"].items()} == {"files": 0, "each": 0}
