"""The driver's verdict on a query's plan, which tasks read from a local property of their jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

PROPERTY = "magnetar.stream.plan"
JOB_GROUP = "spark.jobGroup.id"
"""Spark's streams run their jobs in a job group that is named after the run id."""
UNKNOWN = "its plan is not visible (open the session with open_session, or pass it to magnetar.spark.enable)"


class PlanVerdict(NamedTuple):
    """Whether batches of a query run are repeatable.

    Attributes:
        reason: reason why a repeated batch may have different rows or a different order; empty if it cannot.
        first_batch: number of the run's first batch.
    """

    reason: str
    first_batch: int = 0

    def text(self, run_id: str) -> str:
        """Return the value of the property for a run."""
        return f"{run_id} {self.first_batch} {self.reason}"


def plan_verdict(local_property: Callable[[str], str | None]) -> PlanVerdict:
    """Return the verdict on the query of a task.

    Threads inherit local properties, so the property of another query or an earlier run may be present; it is ignored.

    Args:
        local_property: returns a local property of the task's job by name.
    """
    run_id, _, rest = (local_property(PROPERTY) or "").partition(" ")
    first_batch, _, reason = rest.partition(" ")
    if not run_id or run_id != local_property(JOB_GROUP) or not first_batch.isdigit():
        return PlanVerdict(UNKNOWN)
    return PlanVerdict(reason, int(first_batch))
