"""A function under load is changed, moved and frozen: nothing is lost, and no two runs of an instance ever overlap."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.support.cluster import Cluster
from tests.support.pulsar import KEEP_ALIVE_S, ApachePulsar, own_name
from tests.support.stream import Output, Stream, check_fenced, duplicates, source
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.timeout(300)]

PARTITIONS = 6
EXACT = "EFFECTIVELY_ONCE"
KINDS = [
    pytest.param("process", "failover", id="process-failover", marks=pytest.mark.slow),
    pytest.param("thread", "shared", id="thread-shared", marks=pytest.mark.slow),
    pytest.param("process", "shared", id="process-shared", marks=pytest.mark.crash),
    pytest.param("thread", "failover", id="thread-failover", marks=pytest.mark.crash),
    pytest.param("process", EXACT, id="process-exact", marks=pytest.mark.crash),
    pytest.param("thread", EXACT, id="thread-exact", marks=pytest.mark.crash),
]
"""Runtime, and how the instances share the input; EFFECTIVELY_ONCE shares as failover does."""

SHARING: dict[str, dict[str, Any]] = {
    "shared": {},
    "failover": {"retainOrdering": True},
    EXACT: {"processingGuarantees": EXACT},
}
SETTLE_S = 60.0
FROZEN_S = 60.0


PULSAR = "apache_pulsar"
"""No test here kills the broker."""


@dataclass
class Deployed:
    """A function with topics of its own, under load."""

    cluster: Cluster
    name: str
    config: dict[str, Any]
    stream: Stream

    def workers(self) -> list[str]:
        """A follower and the leader: requests go through each in turn."""
        leader = self.cluster.leader()
        return [next(name for name in self.cluster.living() if name != leader), leader]

    def update(self, through: str, tag: str, text: str, **changes: Any) -> None:
        """Update through a worker, and wait until each instance runs as it says: all answer with that tag."""
        self.config |= changes
        with self.cluster.functions(through) as functions:
            functions.update(self.name, text, self.config).raise_for_status()
        since = self.stream.published
        self.settle()
        wanted = set(range(self.config["parallelism"]))
        self.stream.wait_for(
            lambda outputs: {one.instance for one in outputs if one.number >= since and one.tag == tag} >= wanted,
            f"{tag} of {wanted}",
        )

    def status(self) -> dict[str, Any]:
        return dict(self.cluster.get(f"/admin/v3/functions/public/default/{self.name}/status"))

    def settle(self, among: list[str] | None = None) -> None:
        def is_whole() -> bool:
            url = self.cluster.workers[(among or self.cluster.living())[0]].worker_url
            status = httpx.get(f"{url}/admin/v3/functions/public/default/{self.name}/status", timeout=10).json()
            owners = {one["status"]["workerId"] for one in status["instances"]}
            counts = (status["numInstances"], status["numRunning"])
            if counts != (self.config["parallelism"],) * 2 or not owners <= set(among or self.cluster.living()):
                return False
            return self._consumers() == [self.config["parallelism"]] * PARTITIONS  # nobody else is left

        wait_for(is_whole, f"{self.config['parallelism']} running instances of {self.name}", SETTLE_S)

    def _consumers(self) -> list[int]:
        """How many read each partition."""
        (topic,) = self.config["inputs"]
        url = f"{self.cluster.broker.web_url}/admin/v2/persistent/public/default/{topic}/partitioned-stats"
        stats = httpx.get(url, params={"perPartition": "true"}, timeout=10).raise_for_status().json()
        subscriptions = [one["subscriptions"] for one in stats["partitions"].values()]
        return [len(one[f"public/default/{self.name}"]["consumers"]) for one in subscriptions]

    def owners(self, worker: str | None = None) -> dict[str, str]:
        """Instance and its worker, as a worker sees the assignments."""
        assignments = self.cluster.assignments(worker)
        return {key: worker for worker, keys in assignments.items() for key in keys if f"/{self.name}:" in key}


Deploy = Callable[..., Deployed]


@pytest.fixture
def deploy(cluster: Cluster) -> Iterator[Deploy]:
    made: list[Deployed] = []

    def make(runtime: str, kind: str, text: str, parallelism: int) -> Deployed:
        name, topic, output = own_name("fn").replace("-", "_"), own_name("in"), own_name("out")
        url = f"{cluster.broker.web_url}/admin/v2/persistent/public/default/{topic}/partitions"
        httpx.put(url, json=PARTITIONS, timeout=60).raise_for_status()
        config = {
            "className": f"{name}.process", "inputs": [topic], "output": output, "runtimeEnv": runtime,
            "parallelism": parallelism, "subscriptionPosition": "Earliest", **SHARING[kind],
        }  # fmt: skip
        with cluster.functions() as functions:
            functions.create(name, text, config).raise_for_status()
        partitions = [f"persistent://public/default/{topic}-partition-{number}" for number in range(PARTITIONS)]
        deployed = Deployed(cluster, name, config, Stream(cluster.broker.service_url, partitions, output))
        made.append(deployed)
        deployed.settle()
        return deployed

    yield make
    for one in made:
        one.stream.close()
        with cluster.functions() as functions:
            functions.delete(one.name)


def check(outputs: list[Output], kind: str, what: str) -> None:
    """No run of an instance overlapped with another; and nothing came twice where that is promised."""
    print(f"{what}, {kind}: {len(outputs)} outputs, {duplicates(outputs)} of them twice")
    check_fenced(outputs)
    assert kind != EXACT or not duplicates(outputs)


def tags_since(outputs: list[Output], number: int) -> set[str]:
    return {one.tag for one in outputs if one.number >= number}


@pytest.mark.parametrize(("runtime", "kind"), KINDS)
def test_updates_under_load_lose_nothing_and_leave_no_old_code(deploy: Deploy, runtime: str, kind: str) -> None:
    deployed = deploy(runtime, kind, source("v1"), 2)
    stream = deployed.stream
    follower, leader = deployed.workers()
    spans = [(stream.passed(), "v1")]
    deployed.update(follower, "v2", source("v2"))
    spans.append((stream.passed(), "v2"))
    deployed.update(leader, "configured", source("v2"), userConfig={"tag": "configured"})
    spans.append((stream.passed(), "configured"))
    deployed.update(follower, "configured", source("v2"), parallelism=5)
    first_of_five = stream.passed()
    stream.wait_for(lambda outputs: len({one.instance for one in outputs if one.number >= first_of_five}) == 5, "five")
    deployed.update(leader, "single", source("v3"), parallelism=1, userConfig={"tag": "single"})
    spans.append((stream.passed(), "single"))
    outputs = stream.finish()
    check(outputs, kind, f"updates, {runtime}")
    for (begin, tag), (end, _) in zip(spans, [*spans[1:], (stream.published, "")], strict=True):
        # Up to the next update every input is answered by the code of its time; during one by the old or the new.
        assert tag in tags_since([one for one in outputs if one.number < end], begin), (tag, begin, end)
        assert not [one for one in outputs if one.number >= begin and one.tag in earlier(spans, tag)], tag
    assert {one.instance for one in outputs if one.number >= spans[-1][0]} == {0}


def earlier(spans: list[tuple[int, str]], tag: str) -> list[str]:
    tags = [one for _, one in spans]
    return tags[: tags.index(tag)]


@pytest.mark.slow
def test_inputs_cannot_be_altered_by_an_update(cluster: Cluster, deploy: Deploy) -> None:
    deployed = deploy("thread", "shared", source("v1"), 1)
    with cluster.functions() as functions:
        answer = functions.update(deployed.name, source("v2"), {**deployed.config, "inputs": ["another"]})
    assert (answer.status_code, answer.json()["reason"]) == (400, "Input Topics cannot be altered")
    deployed.stream.passed()
    assert {one.tag for one in deployed.stream.finish()} == {"v1"}


@pytest.mark.parametrize(("runtime", "kind"), KINDS)
def test_moved_instances_lose_nothing_and_never_run_twice(
    cluster: Cluster, deploy: Deploy, runtime: str, kind: str
) -> None:
    # Some messages take longer than it takes another worker to start an instance.
    deployed = deploy(runtime, kind, source("v1", sleep_s=1.5, every=307), PARTITIONS)
    stream = deployed.stream
    follower, leader = deployed.workers()
    before = deployed.owners()
    url = f"{cluster.workers[leader].worker_url}/admin/v2/worker"
    httpx.put(f"{url}/leader/drain", params={"workerId": follower}, timeout=60).raise_for_status()
    wait_for(lambda: follower not in deployed.owners().values(), "drained worker", SETTLE_S)
    deployed.settle()
    stream.passed()
    moved = {key for key, worker in deployed.owners().items() if before[key] != worker}
    assert moved == {key for key, worker in before.items() if worker == follower}
    # Started again, it is like new, even if the leader never saw it away; then the load is evened out again.
    cluster.workers[follower].stop()
    cluster.revive()
    cluster.assemble()
    httpx.put(
        f"{cluster.workers[cluster.leader()].worker_url}/admin/v2/worker/rebalance", timeout=60
    ).raise_for_status()
    wait_for(lambda: follower in deployed.owners().values(), "instances on the empty worker", SETTLE_S)
    deployed.settle()
    stream.passed()
    outputs = stream.finish()
    check(outputs, kind, f"moves, {runtime}")


@pytest.mark.parametrize(("runtime", "kind"), KINDS)
def test_instances_of_a_frozen_worker_put_nothing_out_once_they_are_replaced(
    cluster: Cluster, deploy: Deploy, runtime: str, kind: str
) -> None:
    if isinstance(cluster.broker, ApachePulsar) and (seconds := cluster.broker.keep_alive_s()) > KEEP_ALIVE_S:
        pytest.skip(f"keepAliveIntervalSeconds of this broker is {seconds}; {KEEP_ALIVE_S} shows it in a test's time")
    # Slow enough that there is always something in its hands.
    deployed = deploy(runtime, kind, source("v1", sleep_s=0.01), PARTITIONS)
    stream = deployed.stream
    follower, _ = deployed.workers()
    others = [name for name in cluster.living() if name != follower]
    lost = {int(key.rpartition(":")[2]) for key, worker in deployed.owners().items() if worker == follower}
    assert lost
    stream.passed()
    os.kill(cluster.workers[follower].pid, signal.SIGSTOP)
    try:
        wait_for(lambda: follower not in deployed.owners(others[0]).values(), "other owners", FROZEN_S)
        deployed.settle(others)
        replaced_at = stream.published
        stream.wait_for(lambda outputs: set(runs_since(outputs, replaced_at)) >= lost, "successors")
        successors = runs_since(stream.outputs, replaced_at)
    finally:
        os.kill(cluster.workers[follower].pid, signal.SIGCONT)
    wait_for(lambda: len(cluster.get("/admin/v2/worker/cluster", others[0])) == len(cluster.workers), "all members")
    wait_for(lambda: follower not in cluster.assignments(follower), "its new view")
    stream.passed()
    outputs = stream.finish()
    check(outputs, kind, f"frozen, {runtime}")
    # Moved once: what the frozen worker had started is not started there again.
    assert {instance: run for instance, run in runs_since(outputs, replaced_at).items() if instance in lost} == {
        instance: run for instance, run in successors.items() if instance in lost
    }


def runs_since(outputs: list[Output], number: int) -> dict[int, str]:
    """The last run of each instance that has put out anything of this input or a later one."""
    return {one.instance: one.run for one in outputs if one.number >= number}
