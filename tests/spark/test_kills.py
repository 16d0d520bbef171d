"""Drivers and brokers that die in the middle of a write, and a session that is not ours."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from magnetar.spark.java import find_java

from tests.spark.spark_cluster import Master
from tests.spark.topics import fill, numbered, options_for, values
from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
ROWS, PARTS = 300_000, 3

WRITES = f"""
import json, sys
from pathlib import Path
from magnetar.spark.session import SessionConfig, open_session

directory, master, settings, url, admin_url = Path(sys.argv[1]), *sys.argv[2:]
config = SessionConfig(directory=directory, master=master, heap="512m", settings=json.loads(settings))
with open_session(config) as session:
    frame = session.spark.range(0, {ROWS}, 1, {PARTS}).selectExpr("lpad(cast(id AS string), 100, '0') AS value")
    # Slow enough to be met in the middle.
    def slowly(batches):
        import time
        for batch in batches:
            time.sleep(0.15)
            yield batch
    (frame.mapInArrow(slowly, frame.schema).write.format("magnetar").mode("append").option("service.url", url)
        .option("admin.url", admin_url).option("topic", "out").option("effectivelyOnce", "true")
        .option("producer.name.prefix", "a run").save())
"""

PLAIN_SPARK = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
found = spark.read.format("magnetar").option("service.url", sys.argv[1]).load("in")
print("rows", found.count())
spark.stop()
"""


class Driver:
    """A driver in a process group of its own, so that its JVM and workers are met by a kill too."""

    def __init__(self, directory: Path, broker: Server, master: Master) -> None:
        directory.mkdir(exist_ok=True)
        self._log = directory / "driver.log"
        where = [str(directory), master.url, json.dumps(dict(master.settings))]
        command = [sys.executable, "-c", WRITES, *where, broker.service_url, broker.web_url]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=directory, env=dict(master.environment)
            )

    def wait(self) -> None:
        """Wait for its end, which must be a good one."""
        assert self.process.wait(400) == 0, self._log.read_text()[-3000:]

    def kill(self) -> None:
        """End it as a crash would."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


def rows_written(broker: Server) -> int:
    import httpx

    url = f"{broker.web_url}/admin/v2/persistent/public/default/out/stats"
    return int(httpx.get(url).raise_for_status().json()["msgInCounter"])


def wait_for_rows(broker: Server, driver: Driver, rows: int) -> None:
    wait_for(lambda: rows_written(broker) >= rows or driver.process.poll() is not None, f"{rows} rows", 300)
    assert driver.process.poll() is None, "the write was over before it could be met in the middle"


def test_a_driver_that_was_killed_is_run_again_without_repetition(master: Master, tmp_path: Path) -> None:
    with running("broker", tmp_path / "broker") as broker:
        driver = Driver(tmp_path / "spark", broker, master)
        try:
            wait_for_rows(broker, driver, ROWS // 4)
        finally:
            driver.kill()
        last = Driver(tmp_path / "spark", broker, master)
        try:
            last.wait()
        finally:
            last.kill()
        assert sorted(map(int, values(options_for(broker.service_url, "out")))) == list(range(ROWS))


def test_a_broker_that_is_killed_while_it_is_written_to_loses_and_repeats_nothing(
    master: Master, tmp_path: Path
) -> None:
    with running("broker", tmp_path / "broker") as broker:
        driver = Driver(tmp_path / "spark", broker, master)
        try:
            wait_for_rows(broker, driver, ROWS // 10)
            broker.kill()
            broker.restart()
            driver.wait()
        finally:
            driver.kill()
        assert sorted(map(int, values(options_for(broker.service_url, "out")))) == list(range(ROWS))


def test_a_session_of_the_user_finds_the_source_by_itself(cluster: Server, tmp_path: Path) -> None:
    java = find_java(os.environ)
    if "jdk.incubator.vector" not in java.modules:
        pytest.skip(f"Spark's own start needs a Java with all modules; {java.home} lacks jdk.incubator.vector")
    fill(cluster.service_url, "in", [numbered(700)])
    expected = len(values(options_for(cluster.service_url, "in")))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    shown = subprocess.run(
        [sys.executable, "-c", PLAIN_SPARK, cluster.service_url],
        env=environment, capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert f"rows {expected}" in shown.stdout.splitlines(), shown.stderr[-3000:]
