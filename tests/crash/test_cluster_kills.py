"""Three workers are one service: whoever dies, every function runs as often as it should, on those that live."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import psutil
import pytest

from tests.support.cluster import FUNCTION, PARALLELISM, SETTLE_S, SOURCE, Cluster, Probe
from tests.support.pulsar import BROKERS, KEEP_ALIVE_S, ApachePulsar
from tests.support.servers import descendants
from tests.support.waiting import wait_for

from .conftest import SERVER

pytestmark = [pytest.mark.timeout(300)]

HEALED_S = 5.0
FROZEN_S = 12.0  # the broker notices silence after two to four seconds, and two more are forgiven
ROUNDS = [pytest.param(0, marks=pytest.mark.slow), *(pytest.param(n, marks=pytest.mark.crash) for n in range(1, 6))]


@pytest.fixture(scope="module", params=BROKERS)
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    pulsar = request.getfixturevalue("mortal_pulsar") if request.param == "pulsar" else None
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), pulsar)
    try:
        cluster.start()
        url = f"{cluster.broker.web_url}/admin/v2/persistent/public/default/{cluster.input}/partitions"
        httpx.put(url, json=PARALLELISM, timeout=60).raise_for_status()
        with cluster.functions() as functions:
            functions.create(FUNCTION, SOURCE, cluster.config).raise_for_status()
        cluster.settle(time.monotonic())
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def probe(started: Cluster) -> Iterator[Probe]:
    probe = Probe(started)
    yield probe
    probe.close()


@pytest.fixture
def cluster(started: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """The cluster with all its workers, whole."""
    request.node.stash[SERVER] = started
    started.revive()
    started.even_out()
    return started


def kill(cluster: Cluster, *victims: str) -> float:
    """`kill -9` of workers; returns when, once their functions are dead, too."""
    below = [process for name in victims for process in descendants(cluster.workers[name].pid)]
    killed_at = time.monotonic()
    for name in victims:
        os.kill(cluster.workers[name].pid, signal.SIGKILL)
    for name in victims:
        cluster.workers[name].kill()
    _, left = psutil.wait_procs(below, timeout=2)
    # Orphans that nobody has waited for yet are dead.
    assert not [one for one in left if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    return killed_at


def check_healed(cluster: Cluster, probe: Probe, killed_at: float, what: str) -> None:
    """Everything came at least once meanwhile; now the function is whole, and each message comes out once."""
    during = probe.publish()
    took_s = cluster.settle(killed_at)
    probe.drain(during)
    print(f"{what}: whole again after {took_s:.2f} s")
    assert took_s < HEALED_S, f"{what}: whole again after {took_s:.2f} s"
    probe.check_once()


@pytest.mark.parametrize("number", ROUNDS)
def test_killed_worker_is_replaced(cluster: Cluster, probe: Probe, number: int) -> None:
    leader = cluster.leader()
    victims = [name for name in cluster.living() if name != leader]
    check_healed(cluster, probe, kill(cluster, victims[number % len(victims)]), "worker")
    assert cluster.leader() == leader


@pytest.mark.parametrize("number", ROUNDS)
def test_killed_leader_is_replaced(cluster: Cluster, probe: Probe, number: int) -> None:
    victim = cluster.leader()
    check_healed(cluster, probe, kill(cluster, victim), "leader")
    assert cluster.leader() != victim


@pytest.mark.parametrize("number", ROUNDS)
def test_last_worker_takes_everything_when_two_die_at_once(cluster: Cluster, probe: Probe, number: int) -> None:
    victims = random.Random(number).sample(cluster.living(), 2)
    check_healed(cluster, probe, kill(cluster, *victims), f"two workers {victims}")
    (only,) = cluster.living()
    assert list(cluster.assignments()) == [only]


@pytest.mark.parametrize("number", ROUNDS)
def test_restart_of_the_broker_moves_nothing(cluster: Cluster, probe: Probe, number: int) -> None:
    if isinstance(cluster.broker, ApachePulsar):
        cluster.broker.require_starter()
    before = cluster.assignments()
    processes = process_ids(cluster)
    cluster.broker.kill()
    cluster.broker.restart()
    back_at = time.monotonic()
    texts = probe.publish()
    took_s = cluster.settle(back_at)
    wait_for(lambda: len(cluster.get("/admin/v2/worker/cluster")) == len(cluster.workers), "all members")
    cluster.leader()
    print(f"broker: whole again {took_s:.2f} s after it was back")
    probe.drain(texts)
    probe.check_once()
    assert cluster.assignments() == before
    assert process_ids(cluster) == processes


def process_ids(cluster: Cluster) -> dict[str, set[int]]:
    """Everything that runs below each worker."""
    return {name: {process.pid for process in descendants(cluster.workers[name].pid)} for name in cluster.living()}


@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.parametrize("whom", ["leader", "follower"])
def test_frozen_worker_changes_nothing_when_it_goes_on(cluster: Cluster, probe: Probe, number: int, whom: str) -> None:
    if isinstance(cluster.broker, ApachePulsar) and (seconds := cluster.broker.keep_alive_s()) > KEEP_ALIVE_S:
        pytest.skip(f"keepAliveIntervalSeconds of this broker is {seconds}; {KEEP_ALIVE_S} shows it in a test's time")
    leader = cluster.leader()
    victim = leader if whom == "leader" else next(name for name in cluster.living() if name != leader)
    others = [name for name in cluster.living() if name != victim]
    frozen_at = time.monotonic()
    os.kill(cluster.workers[victim].pid, signal.SIGSTOP)
    try:
        took_s = cluster.settle(frozen_at, others, FROZEN_S + 5)
        cluster.leader(others)
        assert not cluster.processes([victim])
        probe.drain(probe.publish())
        probe.check_once()
        after = cluster.assignments(others[0])
    finally:
        os.kill(cluster.workers[victim].pid, signal.SIGCONT)
    print(f"frozen {whom}: replaced after {took_s:.2f} s")
    assert took_s < FROZEN_S
    # A member again, and it has understood: it sees what the others see, and runs nothing.
    wait_for(lambda: len(cluster.get("/admin/v2/worker/cluster", others[0])) == len(cluster.workers), "all members")
    wait_for(lambda: cluster.assignments(victim) == after, "its new view")
    cluster.settle(time.monotonic())
    probe.check_once()
    assert not cluster.processes([victim])
    assert cluster.assignments() == after


SMALL = "def process(text):\n    return text\n"


@pytest.mark.parametrize("number", ROUNDS)
def test_no_accepted_request_is_lost_when_the_leader_dies_in_the_middle(
    cluster: Cluster, probe: Probe, number: int
) -> None:
    victim = cluster.leader()
    taker = next(name for name in cluster.living() if name != victim)
    create, update, delete = names = [f"{verb}_{number}" for verb in ("create", "update", "delete")]
    with cluster.functions(taker) as functions:
        for name in (update, delete):
            functions.create(name, SMALL, small(name)).raise_for_status()
    answers = Answers(cluster, taker)
    answers.ask(lambda f: f.create(create, SMALL, small(create)))
    answers.ask(lambda f: f.update(update, SMALL, {**small(update), "parallelism": 2}))
    answers.ask(lambda f: f.delete(delete))
    time.sleep(random.Random(number).uniform(0, 0.06))  # the random moment of the kill, not a wait for anything
    killed_at = kill(cluster, victim)
    answers.check()
    check_healed(cluster, probe, killed_at, "leader at work")
    assert sorted(cluster.get("/admin/v3/functions/public/default")) == sorted([FUNCTION, *names[:2]])
    expected = sorted([f"{create}:0", f"{update}:0", f"{update}:1"])
    wait_for(
        lambda: [one for one in cluster.processes() if not one.startswith(f"{FUNCTION}:")] == expected,
        f"processes {expected}", SETTLE_S,
    )  # fmt: skip
    with cluster.functions(taker) as functions:
        for name in (create, update):
            functions.delete(name)


def small(name: str) -> dict[str, object]:
    """The config of a function that nobody uses."""
    return {"className": f"{name}.process", "inputs": [f"{name}-in"], "runtimeEnv": "process"}


class Answers:
    """Requests on their way, each in a thread."""

    def __init__(self, cluster: Cluster, worker: str) -> None:
        self._cluster = cluster
        self._worker = worker
        self._threads: list[threading.Thread] = []
        self._failures: list[str] = []

    def ask(self, call: Callable[..., httpx.Response | None]) -> None:
        def run() -> None:
            try:
                with self._cluster.functions(self._worker) as functions:
                    answer = call(functions)
                if answer is not None:
                    answer.raise_for_status()
            except httpx.HTTPStatusError as exc:
                self._failures.append(f"{exc} {exc.response.text}")
            except Exception as exc:  # noqa: BLE001  the test's own thread reports it
                self._failures.append(repr(exc))

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def check(self) -> None:
        """All are answered with success."""
        for thread in self._threads:
            thread.join(30)
        assert not [thread for thread in self._threads if thread.is_alive()]
        assert not self._failures
