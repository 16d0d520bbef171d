"""Why a cluster gives no executors, in one line."""

from __future__ import annotations

import pytest
from magnetar.spark.cluster import ClusterView, why_none

OWN = ("app-1", "magnetar functions")
TWO = ((1, 600), (4, 2048))


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (None, "no executors: no Spark master answers; start it, or correct sparkMaster"),
        (
            ClusterView(workers=(), applications=(OWN,)),
            "no executors: the Spark master has no workers; start some that register with it",
        ),
        (
            ClusterView(workers=((8, 600),), applications=(OWN, ("app-2", "b"))),
            "no executors: one takes 1024 MB, the largest worker has 600 MB; lower spark.executor.memory in"
            " sparkSettings, or give workers more",
        ),
        (
            ClusterView(workers=TWO, applications=(OWN, ("app-2", "magnetar functions"))),
            "no executors: the 5 cores of the cluster are shared with magnetar functions; the run goes on when some are"
            " free. spark.cores.max in sparkSettings bounds what one takes",
        ),
        (
            ClusterView(workers=TWO, applications=(*(("x", name) for name in "abcde"), OWN)),
            "no executors: the 5 cores of the cluster are shared with a, b, c and 2 more; the run goes on when some are"
            " free. spark.cores.max in sparkSettings bounds what one takes",
        ),
        (
            ClusterView(workers=TWO, applications=(OWN,)),
            "no executors yet: 2 workers have been asked to start some; if it stays so, the stderr of executors in"
            " their work directories says why (their Java, their Python, or no way to this machine)",
        ),
    ],
)
def test_the_reason_names_what_is_missing(view: ClusterView | None, said: str) -> None:
    assert why_none(view, OWN[0], 1024) == said
