"""A worker that is frozen or dead delays nobody who asks how a function is; its instances say that it is silent."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.calm import Calm
from tests.support.cluster import FUNCTION, PARALLELISM, SOURCE, Cluster, Probe
from tests.support.pulsar import BROKERS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ANSWERED_S = 2.5  # one and a half is what a worker waits for another
PATH = f"/admin/v3/functions/public/default/{FUNCTION}"


@pytest.fixture(scope="module", params=BROKERS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    pulsar = request.getfixturevalue("apache_pulsar") if request.param == "pulsar" else None
    # Nobody moves an instance while the test asks, however long that takes.
    cluster = Cluster(tmp_path_factory.mktemp("silent"), pulsar, "rescheduleTimeoutMs: 600000\n")
    try:
        cluster.start()
        cluster.deploy()
        cluster.even_out()
        yield cluster
    finally:
        cluster.stop()


class Asked:
    """What one worker answers about all instances, and how soon."""

    def __init__(self, cluster: Cluster, taker: str) -> None:
        self._cluster = cluster
        self._taker = taker

    def get(self, path: str) -> Any:
        began = Calm()
        answer = self._cluster.get(f"{PATH}/{path}", self._taker)
        assert began.calm_s < ANSWERED_S, f"{path} answered after {began}"
        return answer

    def check(self, silent: dict[int, str]) -> None:
        """The instances of silent workers say so, all others are as they are."""
        status, stats = self.get("status"), self.get("stats")
        errors = {one["instanceId"]: one["status"]["error"] for one in status["instances"]}
        reasons = {one["instanceId"]: one["metrics"].get("error", "") for one in stats["instances"]}
        running = {one["instanceId"] for one in status["instances"] if one["status"]["running"]}
        assert running == set(range(PARALLELISM)) - set(silent)
        for found in (errors, reasons):
            assert {number: text.partition(" did not answer: ")[0] for number, text in found.items()} == {
                number: f"worker {silent[number]}" if number in silent else "" for number in range(PARALLELISM)
            }


@pytest.mark.parametrize("stop", [signal.SIGSTOP, signal.SIGKILL], ids=["frozen", "dead"])
def test_silent_worker_delays_nobody(cluster: Cluster, stop: signal.Signals) -> None:
    leader = cluster.leader()
    silent, other = (name for name in cluster.living() if name != leader)
    held = cluster.assignments()
    numbers = {int(key.rpartition(":")[2]): name for name in (silent, leader) for key in held[name]}
    assert len(numbers) == 4
    os.kill(cluster.workers[leader].pid, signal.SIGSTOP)
    try:
        os.kill(cluster.workers[silent].pid, stop)
        Asked(cluster, other).check(numbers)
    finally:
        os.kill(cluster.workers[leader].pid, signal.SIGCONT)
        if stop == signal.SIGSTOP:
            os.kill(cluster.workers[silent].pid, signal.SIGCONT)
    if stop == signal.SIGSTOP:
        cluster.settle()
        cluster.even_out()


@pytest.mark.crash
def test_a_function_that_a_frozen_worker_runs_is_deleted_and_created_again(cluster: Cluster) -> None:
    cluster.revive()  # whom another test has killed
    cluster.assemble()
    cluster.settle()
    cluster.even_out()
    leader = cluster.leader()
    silent, other = (name for name in cluster.living() if name != leader)
    assert len(cluster.assignments()[silent]) == 2
    os.kill(cluster.workers[silent].pid, signal.SIGSTOP)
    try:
        with cluster.functions(other) as functions:
            functions.delete(FUNCTION)
            stats = f"{cluster.broker.web_url}/admin/v2/persistent/public/default/{cluster.input}/partitioned-stats"
            assert httpx.get(stats, timeout=10).raise_for_status().json()["subscriptions"] == {}
            functions.create(FUNCTION, SOURCE, cluster.config).raise_for_status()
    finally:
        os.kill(cluster.workers[silent].pid, signal.SIGCONT)
    cluster.settle()
    with contextlib.closing(Probe(cluster)) as probe:
        probe.check_once()
