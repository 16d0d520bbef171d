"""Cancelling a run in the host while it is about to begin. No Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.runtime.spark.hosted_function import HostedFunction
from magnetar.spark.jobs.progress import RunProgress
from magnetar.spark.jobs.run_history import History

from tests.spark.specs import MakeSpec
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


class Forgetful:
    """A job that forgets at its beginning that it was cancelled, as one does that makes ready for another run."""

    def __init__(self) -> None:
        self.begins, self.goes_on = threading.Event(), threading.Event()
        self.cancelled = threading.Event()

    def history(self) -> History:
        return History()

    def unfinished(self) -> str:
        return ""

    def run(self, run_id: str, report: Callable[[RunProgress], None], due_ms: int = 0) -> RunProgress:
        self.begins.set()
        self.goes_on.wait(30)
        self.cancelled.clear()
        is_cancelled = self.cancelled.wait(20)
        return RunProgress(run_id=run_id, stage="cancelled" if is_cancelled else "done")

    def cancel(self) -> None:
        self.cancelled.set()

    def close(self) -> None:
        pass


def test_a_run_that_is_cancelled_while_it_begins_ends(make: MakeSpec) -> None:
    job, told = Forgetful(), list[Any]()
    host: Any = SimpleNamespace(
        router=SimpleNamespace(enter=lambda _: None, leave=lambda: None),
        session=SimpleNamespace(is_dying=lambda: False),
        make_job=lambda *_: job,
        tell=told.append,
    )
    function = HostedFunction(1, make(), host, starts_ahead=False)
    function.run("r")
    assert job.begins.wait(30)
    function.cancel("r")
    assert job.cancelled.wait(30)
    job.goes_on.set()
    function.remove()
    wait_for(lambda: told and told[-1]["event"] == "removed", "the end of the function", 40)
    stages = [event["progress"]["stage"] for event in told if event["event"] == "progress"]
    assert stages == ["cancelled"]
