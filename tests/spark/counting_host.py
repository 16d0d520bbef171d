"""A host of Spark functions that count numbers with Spark.

Where a file ``slow`` lies beside the function its tasks wait until it is gone; they make a file ``begun``. As `LATE`
it sees the end of its JVM later than a run that fails of that, as may happen on a busy machine.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.spark.host import SharedSession, serve
from magnetar.runtime.spark.hosted_function import OpenSession
from magnetar.spark.jobs.progress import RunProgress
from magnetar.spark.jobs.run_history import EndedRun, History
from magnetar.spark.session import Session

if TYPE_CHECKING:
    from pyspark import SparkContext

TASKS = 4
ROWS = 1000
PAUSE_S = 60.0
LATE_S = 2.0


class CountingJob:
    is_dataframe = is_statement = False

    def __init__(self, spec: InstanceSpec, open_session: OpenSession, is_wanted: Callable[[], bool]) -> None:
        self._directory = spec.package
        self._open_session = open_session
        self._tag = spec.key.replace("/", "-")
        self._cancelled = False
        self._context: SparkContext | None = None

    def run(self, run_id: str, report: Callable[[RunProgress], None], due_ms: int = 0) -> RunProgress:
        self._cancelled = False
        context = self._context = self._open_session().context
        context.addJobTag(self._tag)
        progress = RunProgress(run_id=run_id, stage="running", tasks_total=TASKS)
        report(progress)
        slow, begun = self._directory / "slow", self._directory / "begun"

        def slowly(numbers: Iterator[int]) -> Iterator[int]:
            begun.touch()
            deadline = time.monotonic() + PAUSE_S
            while slow.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            yield from numbers

        try:
            rows = context.range(0, ROWS, 1, TASKS).mapPartitions(slowly).count()
        except Exception as error:  # noqa: BLE001  the contract
            if self._cancelled:
                return RunProgress(run_id=run_id, stage="cancelled", tasks_total=TASKS)
            return RunProgress(run_id=run_id, stage="failed", error=str(error))
        return RunProgress(run_id=run_id, stage="done", tasks_done=TASKS, tasks_total=TASKS, rows=rows)

    def check(self, session: Session) -> None:
        pass

    def unfinished(self) -> str:
        return ""

    def history(self) -> History:
        return History()

    def remember(self, run: EndedRun, due_ms: int) -> None:
        pass

    def cancel(self) -> None:
        self._cancelled = True
        if self._context is not None:
            self._context.cancelJobsWithTag(self._tag)

    def close(self) -> None:
        pass


def see_ends_late() -> None:
    see = SharedSession._watch

    def see_late(self: SharedSession, pid: int) -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        time.sleep(LATE_S)
        see(self, pid)

    SharedSession._watch = see_late  # type: ignore[method-assign]


PROGRAM = (sys.executable, "-P", str(Path(__file__)))
LATE = (*PROGRAM, "late")

if __name__ == "__main__":
    if "late" in sys.argv:
        see_ends_late()
    serve(int(sys.argv[-2]), sys.argv[-1], CountingJob)
