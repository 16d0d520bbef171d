"""A host of Spark functions without Spark: files in the function's directory control its functions.

``broken``: loading fails with the file's text. ``slow``: loading takes until the file is gone. ``tasks``: of a run;
each waits for a file ``go`` that says ``all`` or a number above its own. ``deaf``: the run ignores cancel.
``raises``: what the function raises in the end. ``served``: time of the latest trigger. ``unfinished``: the id of a run
that another host has begun.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from magnetar.errors import FunctionLoadError
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.spark.host import serve
from magnetar.runtime.spark.hosted_function import OpenSession
from magnetar.spark.jobs.progress import RunProgress
from magnetar.spark.jobs.run_history import EndedRun, History
from magnetar.spark.session import Session

ROWS_A_TASK = 10
POLL_S = 0.01


class FakeJob:
    is_dataframe = is_statement = False

    def __init__(self, spec: InstanceSpec, open_session: OpenSession, is_wanted: Callable[[], bool]) -> None:
        config = json.loads(spec.details.userConfig or "{}")
        self._directory = Path(config.get("directory", spec.package))
        self._cancelled = threading.Event()
        if self._text("broken"):
            raise FunctionLoadError(self._text("broken"))
        while (self._directory / "slow").exists():
            time.sleep(POLL_S)

    def _text(self, name: str) -> str:
        path = self._directory / name
        return path.read_text() if path.exists() else ""

    def history(self) -> History:
        return History(served_ms=int(self._text("served") or 0))

    def remember(self, run: EndedRun, due_ms: int) -> None:
        with (self._directory / "remembered").open("a") as file:
            file.write(f"{run.run_id} {run.stage} {due_ms}\n")

    def run(self, run_id: str, report: Callable[[RunProgress], None], due_ms: int = 0) -> RunProgress:
        print("the function speaks")
        with (self._directory / "runs").open("a") as file:
            file.write(f"{run_id}\n")
        if due_ms:
            (self._directory / "served").write_text(str(due_ms))
        self._cancelled.clear()
        total = int(self._text("tasks") or 0)
        progress = RunProgress(run_id=run_id, stage="planning")
        for done in range(total):
            progress = RunProgress(
                run_id=run_id, stage="running", tasks_done=done, tasks_total=total, rows=done * ROWS_A_TASK
            )
            report(progress)
            while not self._may_go(done):
                if self._cancelled.wait(POLL_S) and not self._text("deaf"):
                    return RunProgress(run_id=run_id, stage="cancelled", tasks_done=done, tasks_total=total)
        if self._text("raises"):
            return RunProgress(run_id=run_id, stage="failed", error=self._text("raises"), is_user_error=True)
        return RunProgress(
            run_id=run_id, stage="done", tasks_done=total, tasks_total=total, rows=total * ROWS_A_TASK, lag=0
        )

    def _may_go(self, done: int) -> bool:
        text = self._text("go")
        return text == "all" or int(text or 0) > done

    def check(self, session: Session) -> None:
        pass

    def unfinished(self) -> str:
        return self._text("unfinished")

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        pass


PROGRAM = (sys.executable, "-P", str(Path(__file__)))

if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2], FakeJob)
