"""What the driver found out about the plan of a query, as its tasks read it from a local property of their jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

PROPERTY = "magnetar.stream.plan"
JOB_GROUP = "spark.jobGroup.id"
"""Spark's streams run their jobs in a group that is named by the id of the run."""
UNKNOWN = "its plan is not visible here (open the session with open_session, or pass it to magnetar.spark.enable)"


class PlanVerdict(NamedTuple):
    """Whether batches of one run of a query repeat.

    Attributes:
        reason: why a batch that is run again may have other rows or another order; empty if it cannot.
        first_batch: number of the batch that the run began with.
    """

    reason: str
    first_batch: int = 0

    def text(self, run_id: str) -> str:
        """Return the value of the property for a run."""
        return f"{run_id} {self.first_batch} {self.reason}"


def plan_verdict(local_property: Callable[[str], str | None]) -> PlanVerdict:
    """Return the verdict on the query that a task belongs to.

    Threads inherit local properties, so one may have that of another query or of an earlier run: it is not used.

    Args:
        local_property: returns a local property of the task's job by its name.
    """
    run_id, _, rest = (local_property(PROPERTY) or "").partition(" ")
    first_batch, _, reason = rest.partition(" ")
    if not run_id or run_id != local_property(JOB_GROUP) or not first_batch.isdigit():
        return PlanVerdict(UNKNOWN)
    return PlanVerdict(reason, int(first_batch))
