"""Runs the Spark jobs of a run, reports their progress and errors, and cancels them with the run.

Progress (tasks per stage and rows read) comes from Spark's status store, which only the driver has. The jobs of
DataFrame functions are not planned: each action of the user's code starts one or more, so only Spark knows their
stages. Only jobs with the function's tag that started after the creation of `JobProgress` are counted.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from ...errors import MagnetarError
from ...instance.stats import format_error
from ..task_killer import PROPERTY, TaskKiller
from .progress import Recorded

if TYPE_CHECKING:
    from pyspark import SparkContext

    from .plans import Plan

LOOK_S = 0.1
_ERROR_CHARACTERS = 8_000
_ENDED = ("COMPLETE", "FAILED")
_SKIPPED = "SKIPPED"
_log = logging.getLogger(__name__)
_OWN_ERROR = re.compile(r"^magnetar\.errors\.(\w+: .*)$", re.MULTILINE)


class RunCancelled(Exception):
    """The run was cancelled."""


class RunFailed(Exception):
    """The run cannot continue.

    Attributes:
        is_user_error: whether the function raised the error.
    """

    def __init__(self, text: str, is_user_error: bool = False) -> None:
        super().__init__(text)
        self.is_user_error = is_user_error


def failed_with(plan: Plan, text: str, is_user_error: bool = False) -> RunFailed:
    """Return the failure of a run whose plan is kept, which the error message mentions."""
    return RunFailed(
        f"{text}\nplan {plan.number} is kept: the next run resumes it without repeating stored "
        "outputs; functions reset-cursor discards it",
        is_user_error,
    )


def failed_job(plan: Plan, error: Exception, what: str, *, runs_user_code: bool) -> RunFailed:
    """Return the failure for an error in a plan's job.

    Args:
        plan: plan of the job.
        error: raised by Spark, by us, or by user code.
        what: function name for the error message.
        runs_user_code: whether the job itself runs user code, so that errors other than ours are raised by the
            function.
    """
    is_ours = isinstance(error, MagnetarError)
    is_of_spark = hasattr(error, "java_exception") or type(error).__module__.startswith(("pyspark", "py4j"))
    text = told(error) if is_of_spark or is_ours else format_error(error)
    if isinstance(error, PicklingError):
        text = (
            f"cannot pickle an object that {what} passes to Spark: {error};"
            " create the object inside the function that Spark calls"
        )
    if is_of_spark and (ours := _OWN_ERROR.search(text)):
        return failed_with(plan, ours[1])  # raised while reading entries or writing rows
    return failed_with(plan, text, runs_user_code and not is_ours)


@contextlib.contextmanager
def watched(context: SparkContext, tag: str, look: Callable[[], bool]) -> Iterator[None]:
    """Tag the jobs that this thread starts and cancel them once ``look`` returns True.

    Args:
        context: context that runs the jobs.
        tag: unique tag of the function.
        look: called every `LOOK_S` seconds from another thread; once it returns True, the jobs are cancelled.
    """
    is_over = threading.Event()
    killer = TaskKiller(str(context.getConf().get("spark.driver.host")))

    def watch() -> None:
        while not is_over.wait(LOOK_S):
            if look():
                # Repeated, because the job may not have started at the first cancellation.
                context.cancelJobsWithTag(tag)
                killer.kill()

    thread = threading.Thread(target=watch, name=f"watch {tag}", daemon=True)
    context.setLocalProperty("spark.scheduler.pool", tag)
    context.setLocalProperty(PROPERTY, killer.address)
    context.addJobTag(tag)
    thread.start()
    try:
        yield
    except BaseException:
        killer.kill()  # the watching thread may not have checked since
        raise
    finally:
        is_over.set()
        thread.join()
        killer.close()
        context.removeJobTag(tag)


def runs_here(context: SparkContext) -> bool:
    """Return whether all tasks run on the driver's machine as the driver's user, and so can read its files."""
    return bool(context.master.startswith("local")) and not context.master.startswith("local-")


def told(error: BaseException) -> str:
    """Return the message of a job's error without the JVM's stack trace."""
    cause: Any = getattr(error, "java_exception", None)
    text = str(error) if cause is None else str(cause.getMessage() or cause.toString())
    lines = []
    for line in text.splitlines():
        if line.startswith(("Driver stacktrace:", "\tat ", "JVM stacktrace:")):
            break
        lines.append(line)
    text = "\n".join(lines).strip() or type(error).__name__
    return text if len(text) <= _ERROR_CHARACTERS else f"{text[:_ERROR_CHARACTERS]} …"


@dataclass(frozen=True, slots=True)
class Work:
    """Tasks, rows and metrics of the jobs of a run.

    Attributes:
        tasks_done: number of finished tasks in all stages.
        tasks_total: number of tasks in all stages; grows with each job.
        rows: rows read from sources by the stage that read the most, because each action may read the same rows again.
        metrics: metrics recorded by the function.
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
    """Sums up the progress of the jobs with one tag; not thread-safe."""

    def __init__(self, context: SparkContext, tag: str) -> None:
        """Start counting; existing jobs with ``tag`` are ignored."""
        self._tag = tag
        self._scala: Any = context._jsc.sc()  # PySpark's own tracker does not support tags
        self._ended: dict[int, _Stage] = {}
        self._work = Work()
        self._before = max(self._jobs(), default=-1)

    def look(self) -> Work:
        """Return the progress of the jobs, or the last known progress if Spark does not answer."""
        try:
            self._work = self._count()
        except Exception as error:  # noqa: BLE001  the JVM has ended, which is reported where the job runs
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
