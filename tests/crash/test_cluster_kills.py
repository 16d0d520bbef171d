"""Three workers are one service: whoever dies, every function runs as often as it should, on those that live."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.support.calm import Calm
from tests.support.cluster import FUNCTION, SETTLE_S, Cluster, Probe
from tests.support.pulsar import KEEP_ALIVE_S, ApachePulsar
from tests.support.servers import descendants, survivors
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.timeout(300)]

HEALED_S = 5.0
DEAD_S = 2.0
FORGIVEN_S = 2.0
FROZEN_S = 12.0  # the broker notices silence after two to four seconds, and two more are forgiven
ROUNDS = [pytest.param(0, marks=pytest.mark.slow), *(pytest.param(n, marks=pytest.mark.crash) for n in range(1, 6))]


@pytest.fixture(scope="module")
def deployed(started: Cluster) -> Cluster:
    started.deploy()
    return started


@pytest.fixture(scope="module")
def probe(deployed: Cluster) -> Iterator[Probe]:
    probe = Probe(deployed)
    yield probe
    probe.close()


@pytest.fixture
def cluster(cluster: Cluster, deployed: Cluster) -> Cluster:
    """The cluster with all its workers, the function whole and evenly spread."""
    assert cluster is deployed
    cluster.even_out()
    return cluster


def kill(cluster: Cluster, *victims: str) -> Calm:
    """`kill -9` of workers; returns the time since then, once their functions are dead, too."""
    below = [process for name in victims for process in descendants(cluster.workers[name].pid)]
    killed = Calm()
    for name in victims:
        os.kill(cluster.workers[name].pid, signal.SIGKILL)
    for name in victims:
        cluster.workers[name].kill()
    assert survivors(below, 30) == []
    assert killed.calm_s < DEAD_S, killed
    return killed


def check_healed(cluster: Cluster, probe: Probe, killed: Calm, what: str) -> None:
    """Everything came at least once meanwhile; now the function is whole, and each message comes out once."""
    during = probe.publish()
    cluster.settle()
    said = f"{what}: whole again after {killed}"
    print(said)
    assert killed.calm_s < HEALED_S, said
    probe.drain(during)
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
    back = Calm()
    wait_for(lambda: members_of(cluster) == len(cluster.workers), "all members")
    said, was_too_busy = str(back), back.elapsed_s > FORGIVEN_S > back.calm_s
    texts = probe.publish()
    cluster.settle()
    print(f"broker: whole again {back} after it was back, all members after {said}")
    cluster.assemble()
    probe.drain(texts)
    probe.check_once()
    # Whoever needs longer than is forgiven, since the machine lets nobody go on, counts as gone.
    if not was_too_busy:
        assert cluster.assignments() == before
        assert process_ids(cluster) == processes


def members_of(cluster: Cluster) -> int:
    """How many workers the broker has as members."""
    topic = f"persistent/{cluster.namespace}/coordinate"
    stats = httpx.get(f"{cluster.broker.web_url}/admin/v2/{topic}/stats", timeout=10).raise_for_status().json()
    return len(stats["subscriptions"]["participants"]["consumers"])


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
    frozen = Calm()
    os.kill(cluster.workers[victim].pid, signal.SIGSTOP)
    try:
        cluster.settle(others)
        said = f"frozen {whom}: replaced after {frozen}"
        print(said)
        assert frozen.calm_s < FROZEN_S, said
        cluster.leader(others)
        wait_for(lambda: not cluster.processes([victim]), "end of its functions")
        probe.drain(probe.publish())
        probe.check_once()
        after = cluster.assignments(others[0])
    finally:
        os.kill(cluster.workers[victim].pid, signal.SIGCONT)
    # A member again, and it has understood: it sees what the others see, and runs nothing.
    wait_for(lambda: len(cluster.get("/admin/v2/worker/cluster", others[0])) == len(cluster.workers), "all members")
    wait_for(lambda: cluster.assignments(victim) == after, "its new view")
    cluster.settle()
    probe.check_once()
    wait_for(lambda: not cluster.processes([victim]), "end of what it began anew")
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
    killed = kill(cluster, victim)
    answers.check()
    check_healed(cluster, probe, killed, "leader at work")
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
            thread.join(90)
        assert not [thread for thread in self._threads if thread.is_alive()]
        assert not self._failures
