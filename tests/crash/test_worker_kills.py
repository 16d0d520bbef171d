"""`kill -9` of function processes, of the worker, and of everything."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pulsar
import pytest

from tests.official.talk import send_all
from tests.support.calm import Calm
from tests.support.functions import Functions
from tests.support.servers import Server, descendants
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NAME = "echo"
SOURCE = "def process(text):\n    return text + '!'\n"
MESSAGES = 3000
CONFIG = {
    "className": f"{NAME}.process",
    "inputs": ["in"],
    "output": "out",
    "subscriptionPosition": "Earliest",
    "processingGuarantees": "ATLEAST_ONCE",
    "runtimeEnv": "process",
}
RESTARTED_S = 2.0
DEAD_S = 1.0


@pytest.fixture
def functions(standalone: Server) -> Iterator[Functions]:
    with Functions(standalone.web_url) as it:
        it.create(NAME, SOURCE, CONFIG).raise_for_status()
        yield it


@pytest.fixture
def client(standalone: Server) -> Iterator[pulsar.Client]:
    client = pulsar.Client(standalone.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def instances(server: Server) -> list[psutil.Process]:
    """The living function processes."""
    return [p for p in descendants(server.pid) if title(p).startswith("magnetar instance public/default/")]


def worker(server: Server) -> psutil.Process:
    (found,) = [p for p in psutil.Process(server.pid).children() if " worker " in f"{title(p)} "]
    return found


def title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.NoSuchProcess:
        return ""


def check_dead(processes: list[psutil.Process], within_s: float) -> None:
    """All are dead in time; a zombie is dead, it only waits for whoever inherited it."""
    dying = Calm()
    wait_for(lambda: not [title(p) for p in processes if title(p)], f"death of {processes}")
    assert dying.calm_s < within_s, dying


def instance(server: Server, but_not: int = 0) -> psutil.Process:
    """The function's process, once there is exactly one and it is not the one of before."""
    return wait_for(
        lambda: next((p for p in instances(server) if p.pid != but_not), None), "function process", timeout_s=60
    )


def publish(client: pulsar.Client, numbers: range) -> None:
    producer = client.create_producer("in", batching_enabled=True, batching_max_messages=50, block_if_queue_full=True)
    # Bare digits would reach the function as an int.
    send_all(producer, [b"n%d" % number for number in numbers])
    producer.close()


def collect(consumer: Any, expected: set[bytes]) -> int:
    """Receive until every expected output came; return how many came more than once."""
    seen: set[bytes] = set()
    total = 0
    while seen != expected:
        try:
            message = consumer.receive(30_000)
        except pulsar.Timeout:
            missing = sorted(expected - seen)
            raise AssertionError(f"{len(missing)} of {len(expected)} outputs missing: {missing[:5]} …") from None
        consumer.acknowledge(message)
        assert message.data() in expected
        seen.add(message.data())
        total += 1
    return total - len(seen)


def outputs(numbers: range) -> set[bytes]:
    return {b"n%d!" % number for number in numbers}


@pytest.mark.parametrize("seed", [7, 8])
def test_killed_function_process_runs_again_and_loses_nothing(
    standalone: Server, functions: Functions, client: pulsar.Client, seed: int
) -> None:
    rng = random.Random(seed)
    output = client.subscribe("out", "s")
    process = instance(standalone)
    wait_for(lambda: functions.status(NAME)["running"], "running function")
    for round_number in range(2):
        publish(client, range(round_number * MESSAGES, (round_number + 1) * MESSAGES))
        time.sleep(rng.uniform(0, 0.2))  # the random moment of the kill, not a wait for anything
        killed = Calm()
        process.kill()
        process = instance(standalone, but_not=process.pid)
        wait_for(lambda: functions.status(NAME)["running"], "running function")
        assert killed.calm_s < RESTARTED_S, f"runs again after {killed}, seed {seed}"
    duplicates = collect(output, outputs(range(2 * MESSAGES)))
    print(f"seed {seed}: {duplicates} outputs twice")
    assert functions.status(NAME)["numRestarts"] == 2


def test_killed_worker_takes_its_instances_along_and_comes_back(
    standalone: Server, functions: Functions, client: pulsar.Client
) -> None:
    output = client.subscribe("out", "s")
    before = instance(standalone)
    publish(client, range(100))
    collect(output, outputs(range(100)))
    killed = worker(standalone)
    below = psutil.Process(killed.pid).children(recursive=True)
    assert before in below
    killed.kill()
    check_dead(below, DEAD_S)
    publish(client, range(100, 200))
    collect(output, outputs(range(100, 200)))
    assert instance(standalone).pid != before.pid
    assert worker(standalone).pid != killed.pid
    assert functions.status(NAME)["running"]


def test_killed_zygote_is_replaced(standalone: Server, functions: Functions, client: pulsar.Client) -> None:
    output = client.subscribe("out", "s")
    instance(standalone)
    (zygote,) = [p for p in descendants(standalone.pid) if title(p).startswith("magnetar zygote")]
    zygote.kill()
    publish(client, range(100))
    collect(output, outputs(range(100)))
    another = {**CONFIG, "className": "second.process", "inputs": ["in2"], "output": "out2"}
    functions.create("second", SOURCE, another).raise_for_status()
    second = client.subscribe("out2", "s")
    client.create_producer("in2").send(b"x")
    assert second.receive(30_000).data() == b"x!"


def test_function_survives_the_death_of_everything(
    standalone: Server, functions: Functions, client: pulsar.Client
) -> None:
    output = client.subscribe("out", "s")
    instance(standalone)
    publish(client, range(MESSAGES))
    below = descendants(standalone.pid)
    standalone.kill()
    check_dead(below, 2 * DEAD_S)
    standalone.restart()
    publish(client, range(MESSAGES, MESSAGES + 100))
    collect(output, outputs(range(MESSAGES + 100)))
    instance(standalone)
