"""Spark functions as a user has them, whose tasks run on a standalone cluster: made, run, stopped, and killed."""

from __future__ import annotations

import signal
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from magnetar.spark.session import Session

from tests.spark.deployed import (
    create,
    functions,
    host,
    numbers,
    outputs,
    run_of,
    slow_function,
)
from tests.spark.spark_cluster import ON_CLUSTER, Master, SparkCluster
from tests.spark.topics import fill
from tests.support.calm import Calm
from tests.support.servers import Server, descendants, survivors
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500), ON_CLUSTER]
BEGINS_S = 300.0
GONE_S = 60.0


@pytest.fixture(scope="module")
def server(master: Master, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("on-cluster")
    config = directory / "functions_worker.yml"
    # Long enough for a stop and a start between two runs.
    given = {**master.settings, "spark.dynamicAllocation.executorIdleTimeout": "15s"}
    settings = "".join(f"  {name}: {value}\n" for name, value in given.items())
    config.write_text(f"sparkMaster: {master.url}\nsparkDriverMemory: 512m\nsparkSettings:\n{settings}")
    it = Server(("standalone", "--data-dir", str(directory / "data"), "--config", str(config)), directory)
    it.environment = dict(master.environment)
    try:
        it.start()
        yield it
    finally:
        it.stop()


def test_a_package_with_what_it_needs_runs_on_the_cluster(server: Server, tmp_path: Path) -> None:
    package = tmp_path / "shouting.zip"
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr(
            "shouting.py", "def process(text):\n    import loud.voice\n    return loud.voice.shout(text)\n"
        )
        archive.writestr("loud/__init__.py", "")
        archive.writestr("loud/voice.py", "def shout(text):\n    return f'{text} {__file__}'.upper()\n")
    create(server, "shouting", package, "process", "--runtime", "spark", "--min-partitions", "4").ok()
    fill(server.service_url, "shouting-in", numbers(0, 400, 50))
    shown = functions(server, "trigger", "--name", "shouting").ok().out
    assert "is done: 400 rows, 4 tasks" in shown
    found = [output.decode().split() for output in outputs(server, "shouting")]
    assert sorted(int(number) for number, _ in found) == list(range(400))
    # On loopback all have one disk, but executors work with what was sent to them.
    assert {file for _, file in found if str(server.directory).upper() in file} == set()
    assert run_of(server, "shouting")["lag"] == 0


def test_whatever_is_killed_the_outputs_are_there_once(server: Server, master: Master, tmp_path: Path) -> None:
    code, begun, slow = slow_function(tmp_path, "kills"), tmp_path / "begun", tmp_path / "slow"
    create(server, "kills", code, "process", "--runtime", "spark", "--min-partitions", "8").ok()
    fill(server.service_url, "kills-in", numbers(0, 8_000, 100))
    slow.touch()

    def wait_for_tasks() -> None:
        begun.unlink(missing_ok=True)
        wait_for(begun.exists, "a call of the function", BEGINS_S)

    functions(server, "trigger", "--name", "kills", "--no-wait").ok()
    wait_for_tasks()
    kill([worker for worker in master.python_workers(0) if worker.children() == []])
    wait_for_tasks()
    kill(master.executors()[:1])
    wait_for_tasks()
    driver = host(server)
    family = [*descendants(driver.pid), *master.executors()]
    driver.send_signal(signal.SIGKILL)
    assert survivors(family, GONE_S) == []
    wait_for_tasks()
    assert run_of(server, "kills")["stage"] == "running"
    calm = Calm()
    functions(server, "stop", "--name", "kills").ok()
    assert calm.calm_s < 3  # the command itself takes some of it
    functions(server, "start", "--name", "kills").ok()
    functions(server, "trigger", "--name", "kills", "--no-wait").ok()
    wait_for_tasks()
    family = [*descendants(server.pid), *master.executors()]
    server.kill()  # the broker, and with it all else
    assert survivors(family, GONE_S) == []
    slow.unlink()
    server.restart()
    wait_for(lambda: functions(server, "trigger", "--name", "kills").ok(), "a run to its end", BEGINS_S)
    assert sorted(outputs(server, "kills")) == sorted(b"%d!" % number for number in range(8_000))
    assert run_of(server, "kills")["lag"] == 0


def kill(victims: list[psutil.Process]) -> None:
    assert victims
    for victim in victims:
        victim.kill()


def test_a_run_says_that_the_cluster_has_no_executors_and_goes_on_when_it_has(
    server: Server, session: Session, spark_workers: SparkCluster, tmp_path: Path
) -> None:
    code = tmp_path / "waits.py"
    code.write_text("def process(message):\n    return f'{message}!'\n")
    create(server, "waits", code, "process", "--runtime", "spark").ok()
    fill(server.service_url, "waits-in", numbers(0, 100, 10))
    spark = session.spark.sparkContext
    with Hog(session, spark_workers):
        functions(server, "trigger", "--name", "waits", "--no-wait").ok()
        said = f"no executors: the cluster's 2 cores are shared with {spark.appName}; the run continues when"
        wait_for(lambda: run_of(server, "waits")["reason"].startswith(said), "the reason in the status", BEGINS_S)
        assert "no executors" in functions(server, "status", "--name", "waits").ok().out
    wait_for(lambda: run_of(server, "waits")["stage"] == "done", "the end of the run", BEGINS_S)
    assert run_of(server, "waits")["reason"] == ""
    assert sorted(outputs(server, "waits")) == sorted(b"%d!" % number for number in range(100))


class Hog:
    """Another driver, with a job on all cores."""

    def __init__(self, session: Session, cluster: SparkCluster) -> None:
        self._spark = session.spark.sparkContext
        self._cluster = cluster
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        self._spark.addJobTag("hog")
        with pytest.raises(Exception, match="cancelled"):
            # Nothing of this module is on the executors.
            self._spark.parallelize(range(2), 2).foreach(lambda _: __import__("time").sleep(900))

    def __enter__(self) -> None:
        self._thread.start()
        driver = self._spark._jsc.sc()
        try:
            wait_for(lambda: driver.getExecutorIds().size() == 2, "two executors of the hog", BEGINS_S)
        except AssertionError as error:
            self.__exit__()
            raise AssertionError(f"{error}; the master's log ends:\n{self._cluster.log_tail()}") from None

    def __exit__(self, *_: object) -> None:
        self._spark.cancelJobsWithTag("hog")
        self._thread.join()


@pytest.mark.crash
def test_a_master_that_was_started_again_gets_the_driver_anew(
    server: Server, spark_workers: SparkCluster, tmp_path: Path
) -> None:
    code = tmp_path / "again.py"
    code.write_text("def process(message):\n    return f'{message}!'\n")
    create(server, "again", code, "process", "--runtime", "spark").ok()
    fill(server.service_url, "again-in", numbers(0, 100, 10))
    functions(server, "trigger", "--name", "again").ok()
    spark_workers.restart_master()
    fill(server.service_url, "again-in", numbers(100, 200, 10))
    functions(server, "trigger", "--name", "again").ok()
    assert sorted(outputs(server, "again")) == sorted(b"%d!" % number for number in range(200))
