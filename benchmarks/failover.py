"""Recovery time after `kill -9` of a worker, for its instances, and after that of the leader."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.cluster import Cluster, Probe

from .figure import Figure
from .plan import Plan

KILLS = 10
KILLS_QUICK = 2
TARGET_S = 5.0
PEER_S = 116.0
PEER = "Apache Pulsar 4.0.7, measured on another day"
POLL_MS = 10
GIVE_UP_S = 60.0
SMALL = "def process(text):\n    return text\n"


def measure_failover(plan: Plan) -> Iterator[Figure]:
    """Measure recovery: kill workers one after the other, and restart each."""
    kills = KILLS_QUICK if plan.repeats == 1 else KILLS
    directory = Path(tempfile.mkdtemp(prefix="failover-", dir=plan.directory))
    cluster = Cluster(directory)
    try:
        cluster.start()
        cluster.deploy()
        probe = Probe(cluster)
        try:
            again = [_worker(cluster, probe) for _ in range(kills)]
        finally:
            probe.close()
        led = [_leader(cluster, number) for number in range(kills)]
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
    yield _figure("worker killed: all its instances process again elsewhere", again, peer=PEER_S)
    yield _figure("leader killed: a request is accepted by the next one", led, peer=None)


def _figure(name: str, took_s: list[float], peer: float | None) -> Figure:
    return Figure(
        name=name,
        ours=statistics.median(took_s),
        unit="s",
        peer=peer,
        peer_name=PEER if peer else "",
        target=TARGET_S,
        more_is_better=False,
        note=f"worst of {len(took_s)}: {max(took_s):.2f} s",
    )


def _whole(cluster: Cluster) -> None:
    cluster.revive()
    cluster.even_out()


def _kill(cluster: Cluster, victim: str) -> float:
    """Kill a worker with `kill -9`, and return the time; its functions die with it."""
    killed_at = time.monotonic()
    os.kill(cluster.workers[victim].pid, signal.SIGKILL)
    return killed_at


def _worker(cluster: Cluster, probe: Probe) -> float:
    """Return the seconds until each instance of a killed worker has processed messages published after the kill."""
    _whole(cluster)
    leader = cluster.leader()
    victim = next(name for name in cluster.living() if name != leader)
    waiting = {key.rpartition(":")[2] for key in cluster.assignments()[victim]}
    assert waiting
    killed_at = _kill(cluster, victim)
    published: set[str] = set()
    # Surviving instances take over the partitions immediately, so measure until each successor is working.
    while waiting:
        assert time.monotonic() < killed_at + GIVE_UP_S, f"instances {waiting} of {victim} did not recover"
        published.update(probe.publish())
        waiting -= {instance for text, instance in probe.arrived(POLL_MS) if text in published}
    took_s = time.monotonic() - killed_at
    cluster.workers[victim].kill()
    probe.drain(probe.publish())
    return took_s


def _leader(cluster: Cluster, number: int) -> float:
    """Return the seconds until a request sent when the leader is killed succeeds."""
    _whole(cluster)
    victim = cluster.leader()
    taker = next(name for name in cluster.living() if name != victim)
    name = f"small{number}"
    config = {"className": f"{name}.process", "inputs": [f"{cluster.input}-{name}"], "runtimeEnv": "thread"}
    with cluster.functions(taker) as functions:
        killed_at = _kill(cluster, victim)
        functions.create(name, SMALL, config).raise_for_status()
        took_s = time.monotonic() - killed_at
        cluster.workers[victim].kill()
        functions.delete(name)
    return took_s
