"""Why a cluster gives no executors, in one line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.spark.cluster import ClusterView, cores_of, masters_of, why_none, why_none_managed

OWN = ("app-1", "magnetar functions")
TWO = ((1, 600), (4, 2048))


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (None, "no executors: no Spark master answered; start the master or correct sparkMaster"),
        (
            ClusterView(workers=(), applications=(OWN,)),
            "no executors: the Spark master has no workers; start workers that register with it",
        ),
        (
            ClusterView(workers=((8, 600),), applications=(OWN, ("app-2", "b"))),
            "no executors: an executor requires 1024 MB, but the largest worker has 600 MB; lower"
            " spark.executor.memory in sparkSettings or increase the workers' memory",
        ),
        (
            ClusterView(workers=TWO, applications=(OWN, ("app-2", "magnetar functions"))),
            "no executors: the cluster's 5 cores are shared with magnetar functions; the run continues when cores"
            " become free. Set spark.cores.max in sparkSettings to limit the cores of each function",
        ),
        (
            ClusterView(workers=TWO, applications=(*(("x", name) for name in "abcde"), OWN)),
            "no executors: the cluster's 5 cores are shared with a, b, c and 2 more; the run continues when cores"
            " become free. Set spark.cores.max in sparkSettings to limit the cores of each function",
        ),
        (
            ClusterView(workers=TWO, applications=(OWN,)),
            "no executors yet: 2 workers were asked to start some; if none start, check the stderr of the executors in"
            " the workers' work directories (Java, Python, or network access to this machine)",
        ),
    ],
)
def test_the_reason_names_what_is_missing(view: ClusterView | None, said: str) -> None:
    assert why_none(view, OWN[0], 1024) == said


def test_yarn_and_kubernetes_are_asked_by_their_own_means() -> None:
    assert why_none_managed("yarn", "application_1").startswith(
        "no executors: YARN has not started any yet; check the page of application_1 in the ResourceManager"
    )
    assert "--selector spark-app-selector=spark-1 (" in why_none_managed("k8s://https://a", "spark-1")
    assert masters_of("k8s://https://a.example/path") == [("a.example", 443)]
    assert masters_of("k8s://http://[::1]:8001") == [("::1", 8001)]
    assert masters_of("yarn") == []


@pytest.mark.parametrize(
    ("settings", "cores"),
    [
        ({}, 2),
        ({"spark.dynamicAllocation.maxExecutors": "8"}, 8),
        ({"spark.dynamicAllocation.maxExecutors": "8", "spark.executor.cores": "4"}, 32),
    ],
)
def test_runs_are_cut_for_as_many_cores_as_yarn_may_give(settings: dict[str, str], cores: int) -> None:
    context: Any = SimpleNamespace(defaultParallelism=2, master="yarn", getConf=lambda: settings)
    assert cores_of(context) == cores
