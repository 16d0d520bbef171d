"""Python workers end when the driver kills its tasks; real processes, no Spark."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from magnetar.spark.task_killer import EXIT_CODE, TaskKiller

pytestmark = pytest.mark.spark
TIMEOUT_S = 60.0

TASK = """
import sys, time
from magnetar.spark.task_killer import install

class Context:
    def getLocalProperty(self, name):
        return sys.argv[1] if name == "magnetar.task-killer" else None

class TaskContext:
    @classmethod
    def _setTaskContext(cls, context):
        pass

install(TaskContext)
TaskContext._setTaskContext(Context())
time.sleep(0.1)
print("begun", flush=True)
what = sys.stdin.readline().strip()
if what == "loop":
    while True:
        pass
elif what == "sleep":
    time.sleep(600)
elif what == "end":
    TaskContext._setTaskContext(None)
    print("ended", flush=True)
    sys.stdin.readline()
"""
DRIVER = """
import sys
from magnetar.spark.task_killer import TaskKiller
killer = TaskKiller("127.0.0.1")
print(killer.address, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def python(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    it = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with it:
        try:
            yield it
        finally:
            it.kill()


def tell(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def killer() -> Iterator[TaskKiller]:
    it = TaskKiller("127.0.0.1")
    yield it
    it.close()


@pytest.mark.parametrize("what", ["loop", "sleep"])
def test_a_task_that_hangs_ends_when_the_driver_kills_its_tasks(killer: TaskKiller, what: str) -> None:
    with python(TASK, killer.address) as task:
        assert line(task) == "begun"
        tell(task, what)
        killer.kill()
        assert task.wait(TIMEOUT_S) == EXIT_CODE


def test_a_task_that_begins_after_the_kill_ends_too(killer: TaskKiller) -> None:
    killer.kill()
    with python(TASK, killer.address) as task:
        tell(task, "loop")
        assert task.wait(TIMEOUT_S) == EXIT_CODE


def test_a_task_ends_with_its_driver() -> None:
    with python(DRIVER) as driver, python(TASK, line(driver)) as task:
        assert line(task) == "begun"
        tell(task, "loop")
        driver.kill()
        assert task.wait(TIMEOUT_S) == EXIT_CODE


def test_a_worker_whose_task_is_over_is_not_killed_any_more(killer: TaskKiller) -> None:
    with python(TASK, killer.address) as worker:
        assert line(worker) == "begun"
        tell(worker, "end")
        assert line(worker) == "ended"
        killer.kill()
        tell(worker, "")
        assert worker.wait(TIMEOUT_S) == 0


def test_a_run_that_is_over_lets_its_workers_live() -> None:
    other = TaskKiller("127.0.0.1")
    with python(TASK, other.address) as worker:
        assert line(worker) == "begun"
        other.close()
        tell(worker, "end")
        assert line(worker) == "ended"
        tell(worker, "")
        assert worker.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize("address", ["", "127.0.0.1:1"])
def test_a_task_without_the_address_of_a_driver_is_left_alone(address: str) -> None:
    with python(TASK, address) as worker:
        assert line(worker) == "begun"
        tell(worker, "end")
        assert line(worker) == "ended"
        tell(worker, "")
        assert worker.wait(TIMEOUT_S) == 0
