"""Exactly once by kills: drivers, Python workers and the broker die in the middle of runs of a message function."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from magnetar.instance.spec import InstanceSpec
from magnetar.state.server import TableServer

from tests.spark.functions import Driver, make_spec
from tests.spark.spark_cluster import LOCAL, ON_BOTH_MASTERS, Master
from tests.spark.topics import fill, options_for, values
from tests.support.servers import Server, running, survivors
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow]
CODE = "import time\n\ndef process(value):\n    time.sleep(0.0005)\n    return f'{value}!'\n"
ENTRIES, SIZE = 200, 50
ROUNDS = 10
DECK = 12  # victims, of which ROUNDS are drawn: no kind is left out
GONE_S = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with running("broker", tmp_path / "broker") as it:
        yield it


@pytest.fixture
def spec(broker: Server, tmp_path: Path) -> Iterator[InstanceSpec]:
    (tmp_path / "state").mkdir()
    server = TableServer.start(tmp_path / "state")
    yield make_spec(tmp_path / "function", broker, server.url, CODE, minimum=12)
    server.stop()


def add(broker: Server, first: int) -> list[bytes]:
    """Publish some more, distinct messages; return what becomes of them."""
    rows = [b"m%d" % number for number in range(first, first + ENTRIES * SIZE)]
    fill(broker.service_url, "in", [rows[start : start + SIZE] for start in range(0, len(rows), SIZE)])
    return [row + b"!" for row in rows]


def stored(broker: Server) -> int:
    """Messages of the output topic since the broker began, 0 while it is away."""
    try:
        answer = httpx.get(f"{broker.web_url}/admin/v2/persistent/public/default/out/stats")
    except httpx.TransportError:
        return 0
    return int(answer.json().get("msgInCounter", 0)) if answer.is_success else 0


def below(driver: Driver) -> list[psutil.Process]:
    try:
        return psutil.Process(driver.process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def kill(driver: Driver, master: Master) -> None:
    """Kill the driver; what it had below it ends by itself, and executors do."""
    family = [*below(driver), *master.executors()]
    driver.kill()
    left = survivors(family, GONE_S)
    for process in left:
        process.kill()
    assert not left


def kill_one(kind: str, broker: Server, driver: Driver, master: Master) -> bool:
    """Kill one of a kind; return whether there was one."""
    if kind == "driver":
        kill(driver, master)
    elif kind == "broker":
        broker.kill()
        broker.restart()
    else:
        found = master.executors() if kind == "executor" else master.python_workers(driver.process.pid)
        for process in found[:1]:
            process.kill()
        return bool(found)
    return True


def outputs(broker: Server) -> list[bytes]:
    return sorted(values(options_for(broker.service_url, "out")))


@pytest.mark.timeout(600)
def test_a_driver_killed_in_the_middle_is_repeated_by_another_without_repetition(
    broker: Server, spec: InstanceSpec, tmp_path: Path
) -> None:
    fill(broker.service_url, "in", [[b"first"]])
    expected = [b"first!", *add(broker, 0)]
    with Driver(tmp_path / "spark", spec, "r") as driver:
        wait_for(lambda: stored(broker) > 1000 or driver.process.poll() is not None, "outputs", 300)
        assert driver.process.poll() is None, driver.log.read_text()[-3000:]
        kill(driver, LOCAL)
    assert len(outputs(broker)) < len(expected)
    expected += add(broker, ENTRIES * SIZE)
    with Driver(tmp_path / "spark", spec, "another") as driver:
        assert driver.wait() == {"stage": "done", "rows": len(expected), "error": ""}
    assert outputs(broker) == sorted(expected)


@pytest.mark.timeout(600)
def test_a_broker_killed_in_the_middle_of_a_run_loses_and_repeats_nothing(
    broker: Server, spec: InstanceSpec, tmp_path: Path
) -> None:
    expected = add(broker, 0)
    with Driver(tmp_path / "spark", spec, "r") as driver:
        wait_for(lambda: stored(broker) > 1000 or driver.process.poll() is not None, "outputs", 300)
        assert driver.process.poll() is None, driver.log.read_text()[-3000:]
        broker.kill()
        broker.restart()
        assert driver.wait() == {"stage": "done", "rows": len(expected), "error": ""}
    assert outputs(broker) == sorted(expected)


@pytest.mark.crash
@pytest.mark.timeout(1800)
@ON_BOTH_MASTERS
def test_the_output_is_exact_whatever_is_killed_at_random(
    master: Master, broker: Server, spec: InstanceSpec, tmp_path: Path
) -> None:
    seed = int(os.environ.get("MAGNETAR_SEED", random.SystemRandom().randrange(2**32)))
    print(f"MAGNETAR_SEED={seed}")
    rng = random.Random(seed)
    kinds = ["driver", "Python worker", "broker", *(["executor"] if master.cluster is not None else [])]
    victims = rng.sample(kinds * (DECK // len(kinds)), ROUNDS)
    expected: list[bytes] = []
    driver: Driver | None = None
    runs = 0
    try:
        while victims:
            if driver is not None and driver.process.poll() is not None:
                assert driver.wait()["stage"] == "done"
                driver = None
            if driver is None:
                expected += add(broker, len(expected))
                runs += 1
                driver = Driver(tmp_path / "spark", spec, f"r{runs}", master)
            if not is_in_the_middle(broker, driver):
                continue
            time.sleep(rng.uniform(0, 1.5))  # the moment is the matter
            if not kill_one(victims[-1], broker, driver, master):
                continue  # just between two of them
            print(f"round {ROUNDS + 1 - len(victims)}: {victims[-1]}")
            if victims.pop() == "driver":
                driver = None
        if driver is not None:
            assert driver.wait()["stage"] == "done"
        with Driver(tmp_path / "spark", spec, "last", master) as last:
            end = last.wait()
            assert end["stage"] == "done", end
        assert outputs(broker) == sorted(expected)
    finally:
        if driver is not None:
            kill(driver, master)


def is_in_the_middle(broker: Server, driver: Driver) -> bool:
    """Wait until a run has stored some more; return whether it goes on."""
    before = stored(broker)
    wait_for(lambda: stored(broker) > before + SIZE or driver.process.poll() is not None, "outputs", 300)
    return driver.process.poll() is None
