"""The progress of a function's Spark jobs in Spark's status store: tasks of their stages, and rows that were read.

Only the driver knows this, and for DataFrame functions only Spark does: their jobs are the user's, as many as there are
actions, each of stages that nobody planned. What is counted is of the jobs with the function's tag that began after
this object was made.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .progress import Recorded

if TYPE_CHECKING:
    from pyspark import SparkContext

_ENDED = ("COMPLETE", "FAILED")
_SKIPPED = "SKIPPED"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Work:
    """Tasks, rows and metrics of the jobs of a run.

    Attributes:
        tasks_done: of all their stages.
        tasks_total: of all their stages; grows with each job.
        rows: read from sources, by the stage that has read most: each action may read the same rows again.
        metrics: what the function recorded.
    """

    tasks_done: int = 0
    tasks_total: int = 0
    rows: int = 0
    metrics: Recorded = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Stage:
    status: str
    tasks: int
    done: int
    rows: int


class JobProgress:
    """Adds up the jobs of one tag; for one thread at a time."""

    def __init__(self, context: SparkContext, tag: str) -> None:
        """Begin; jobs of ``tag`` that are there already do not count."""
        self._tag = tag
        self._scala: Any = context._jsc.sc()  # PySpark's own tracker knows no tags
        self._ended: dict[int, _Stage] = {}
        self._work = Work()
        self._before = max(self._jobs(), default=-1)

    def look(self) -> Work:
        """Return how far they are; what was known last where Spark does not say."""
        try:
            self._work = self._count()
        except Exception as error:  # noqa: BLE001  a JVM that ends; whoever runs the job says so
            _log.debug("progress of %s: %r", self._tag, error)
        return self._work

    def _jobs(self) -> list[int]:
        return [int(job) for job in self._scala.statusTracker().getJobIdsForTag(self._tag)]

    def _count(self) -> Work:
        tracker, store = self._scala.statusTracker(), self._scala.statusStore()
        stages: dict[int, _Stage] = {}
        for job in self._jobs():
            info = tracker.getJobInfo(job) if job > self._before else None
            if info is None or info.isEmpty():
                continue
            for number in info.get().stageIds():
                stage = self._ended.get(number) or _read(store, number)
                if stage.status in _ENDED:
                    self._ended[number] = stage
                if stage.status != _SKIPPED:
                    stages[number] = stage
        for number, stage in self._ended.items():  # Spark forgets old jobs
            stages.setdefault(number, stage)
        return Work(
            tasks_done=sum(stage.done for stage in stages.values()),
            tasks_total=sum(stage.tasks for stage in stages.values()),
            rows=max((stage.rows for stage in stages.values()), default=0),
        )


def _read(store: Any, number: int) -> _Stage:
    data = store.lastStageAttempt(number)
    return _Stage(data.status().toString(), data.numTasks(), data.numCompleteTasks(), data.inputRecords())
