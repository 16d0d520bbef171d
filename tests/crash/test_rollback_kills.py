"""A version that does not come up is rolled back once, whenever the leader is killed meanwhile."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from magnetar.web.deployments import VERSION_HEADER

from tests.support.cluster import FUNCTION, Cluster, Probe
from tests.support.servers import descendants, survivors
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.timeout(300)]

PATH = f"/admin/v3/functions/public/default/{FUNCTION}"
BAD = "raise ValueError('no good')\ndef process(text, context):\n    return text\n"
LATEST_S = 4.0
"""The rollback is decided about two seconds after the update: kills come before, in the middle and afterwards."""
ROUNDS = [pytest.param(number, marks=pytest.mark.crash) for number in range(8)]


@pytest.fixture(scope="module")
def deployed(started: Cluster) -> Cluster:
    started.deploy()
    return started


@pytest.fixture(scope="module")
def probe(deployed: Cluster) -> Iterator[Probe]:
    probe = Probe(deployed)
    yield probe
    probe.close()


def update(cluster: Cluster, worker: str, source: str) -> int:
    """Have the function changed by way of a worker; returns the version."""
    files: dict[str, Any] = {
        "functionConfig": (None, json.dumps({}), "application/json"),
        "data": (f"{FUNCTION}.py", source.encode(), "application/octet-stream"),
    }
    url = f"{cluster.workers[worker].worker_url}{PATH}?rollbackOnFailure=true"
    return int(httpx.put(url, files=files, timeout=60).raise_for_status().headers[VERSION_HEADER])


@pytest.mark.parametrize("number", ROUNDS)
def test_a_rollback_outlives_its_leader(cluster: Cluster, deployed: Cluster, probe: Probe, number: int) -> None:
    assert cluster is deployed
    cluster.even_out()
    before = cluster.get(f"{PATH}/versions")[0]["version"]
    delay_s = random.Random(number).uniform(0, LATEST_S)
    print(f"round {number}: the leader is killed {delay_s:.2f} s after the update")
    leader = cluster.leader()
    other = next(name for name in cluster.living() if name != leader)
    version = update(cluster, other, BAD)
    time.sleep(delay_s)  # the moment of the kill is what the rounds vary
    below = descendants(cluster.workers[leader].pid)
    os.kill(cluster.workers[leader].pid, signal.SIGKILL)
    cluster.workers[leader].kill()
    assert survivors(below, 30) == []

    def restored() -> bool:
        versions = cluster.get(f"{PATH}/versions", other)
        return bool(versions[0]["restoredVersion"] == before and versions[0]["state"] == "deployed")

    wait_for(restored, "restored version", timeout_s=120)
    cluster.settle()
    probe.check_once()
    after = [one["version"] for one in cluster.get(f"{PATH}/versions", other) if one["version"] > version]
    assert after == [version + 1], "rolled back once"
    answer = cluster.get(f"{PATH}/deployment?version={version}", other)
    assert (answer["state"], answer["restoredVersion"]) == ("rolledBack", before)
    assert "ValueError: no good" in answer["error"]
    cluster.revive()
