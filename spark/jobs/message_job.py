"""Spark job of a message function: the plan's tasks as an RDD with one range per partition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import AccumulatorParam, SparkFiles, TaskContext

from .plans import Plan, Task
from .range_task import TaskResult, run_task
from .user_code import Shipment

if TYPE_CHECKING:
    from pyspark import Accumulator, Broadcast, SparkContext


class _Listing(AccumulatorParam[list[TaskResult]]):
    """Accumulator of task results, with one result per successful task."""

    def zero(self, value: list[TaskResult]) -> list[TaskResult]:
        """Return the initial value."""
        return []

    def addInPlace(self, value1: list[TaskResult], value2: list[TaskResult]) -> list[TaskResult]:
        """Return both lists, concatenated."""
        value1.extend(value2)
        return value1


@dataclass(frozen=True)
class _Work:
    """Callable that Spark pickles and runs for each partition."""

    shipment: Broadcast[Shipment]
    results: Accumulator[list[TaskResult]]
    is_repeated: bool

    def __call__(self, tasks: Iterable[Task]) -> None:
        context = TaskContext.get()
        assert context is not None
        is_first = not self.is_repeated and context.attemptNumber() == 0
        directory = Path(SparkFiles.getRootDirectory())
        for task in tasks:
            self.results.add([run_task(self.shipment.value, task, directory, is_first=is_first)])


class MessageJob:
    """A Spark job for the tasks of a plan.

    Attributes:
        results: results of finished tasks; grows while `run` executes in another thread.
    """

    def __init__(self, context: SparkContext, shipment: Shipment, plan: Plan, *, is_repeated: bool) -> None:
        """Create the job; ``is_repeated`` if an earlier job may have started the plan."""
        self.results: list[TaskResult] = []
        self._context = context
        self._plan = plan
        self._shipment = shipment
        self._is_repeated = is_repeated
        self._accumulator: Any = context.accumulator(self.results, _Listing())

    def run(self) -> None:
        """Run all tasks to completion.

        Raises:
            Py4JError: the job failed or was cancelled.
        """
        tasks = self._plan.tasks
        shipment = self._context.broadcast(self._shipment)
        try:
            work = _Work(shipment, self._accumulator, self._is_repeated)
            self._context.parallelize(tasks, len(tasks)).foreachPartition(work)
        finally:
            shipment.destroy()
