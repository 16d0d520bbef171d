"""The host process of Spark functions and what its worker makes of it, without Spark."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from magnetar.errors import InvalidConfig, RunNotYet, RunRefused, SparkFailed
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.spark.host_config import SparkConfig
from magnetar.runtime.spark.instance import RESUMES_MAX, SparkInstance
from magnetar.runtime.spark.runtime import SparkRuntime
from magnetar.spark.jobs.progress import reason_of
from magnetar.wire.functions_pb2 import FunctionStatus

from tests.spark.fake_host import PROGRAM, ROWS_A_TASK
from tests.spark.specs import MakeSpec
from tests.support.calm import Calm
from tests.support.eventually import until

pytestmark = pytest.mark.spark


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def runtime(tmp_path: Path, clock: Clock) -> AsyncIterator[SparkRuntime]:
    it = SparkRuntime(
        SparkConfig(data_dir=tmp_path / "data", master="local[2]", program=PROGRAM, starts_ahead=False), clock
    )
    yield it
    pid = it.host_pid
    await it.close()
    assert not pid or not psutil.pid_exists(pid)


async def started(runtime: SparkRuntime, spec: InstanceSpec) -> SparkInstance:
    instance = await runtime.start(spec)

    async def is_running() -> bool:
        return (await instance.status()).running

    await until(is_running)
    return instance


async def stage(instance: SparkInstance, wanted: str, tasks_done: int = 0) -> FunctionStatus.Run:
    async def is_there() -> bool:
        run = (await instance.status()).run
        return run.stage == wanted and run.tasksDone >= tasks_done

    await until(is_there)
    return (await instance.status()).run


async def test_a_run_is_shown_while_it_goes_on_and_counted_when_it_is_done(
    runtime: SparkRuntime, make: MakeSpec
) -> None:
    spec = make(tasks="3")
    instance = await started(runtime, spec)
    assert (await instance.status()).run.stage == "idle"
    await instance.begin_run("r1")
    run = await stage(instance, "running")
    assert (run.runId, run.tasksDone, run.tasksTotal) == ("r1", 0, 3)
    (spec.package / "go").write_text("2")
    run = await stage(instance, "running", tasks_done=2)
    assert run.rows == 2 * ROWS_A_TASK
    (spec.package / "go").write_text("all")
    run = await stage(instance, "done")
    assert run.endedMs >= run.startedMs > 0
    assert (run.rows, run.lag) == (3 * ROWS_A_TASK, -1)  # no broker is there to ask
    await instance.begin_run("r2")
    await stage(instance, "done", tasks_done=3)
    status = await instance.status()
    assert (status.run.runId, status.numReceived) == ("r2", 6 * ROWS_A_TASK)
    assert (await instance.metrics()).processedSuccessfullyTotal == 6 * ROWS_A_TASK
    log = spec.log_file.read_text()
    assert "run r1 begins" in log
    assert "the function speaks" in log
    await instance.stop(30)


async def test_a_function_does_one_run_at_a_time_and_another_does_not_wait_for_it(
    runtime: SparkRuntime, make: MakeSpec
) -> None:
    first = await started(runtime, make("f", tasks="2"))
    second = await started(runtime, make("g", tasks="0"))
    await first.begin_run("r1")
    await stage(first, "running")
    await first.begin_run("r1")  # an answer that was lost
    with pytest.raises(RunRefused, match="run r1 is in progress: running, 0 of 2 tasks done"):
        await first.begin_run("r2")
    await second.begin_run("r3")
    await stage(second, "done")
    assert (first.spec.package / "runs").read_text() == "r1\n"
    await asyncio.gather(first.stop(30), second.stop(30))


async def test_stopping_cancels_the_run_within_a_second(runtime: SparkRuntime, make: MakeSpec) -> None:
    spec = make(tasks="2")
    instance = await started(runtime, spec)
    await instance.begin_run("r1")
    await stage(instance, "running")
    calm = Calm()
    await instance.stop(30)
    assert calm.calm_s < 2
    assert await instance.wait() == ""
    again = await started(runtime, spec)
    assert (await again.status()).run.stage == "cancelled"
    await again.stop(30)


async def test_a_run_that_does_not_let_itself_be_cancelled_takes_the_host_with_it(
    runtime: SparkRuntime, make: MakeSpec
) -> None:
    deaf = await started(runtime, make("f", tasks="2", deaf="yes"))
    other = await started(runtime, make("g", tasks="2"))
    for instance in (deaf, other):
        await instance.begin_run("r1")
        await stage(instance, "running")
    await deaf.stop(0.2)
    assert "public/default/f:0 did not stop within 0.2 s" in await other.wait()


async def test_a_function_that_cannot_be_loaded_says_why(runtime: SparkRuntime, make: MakeSpec) -> None:
    instance = await runtime.start(make(broken="no such thing"))
    async with asyncio.timeout(60):
        assert await instance.wait() == "FunctionLoadError: no such thing"
    assert (await instance.status()).failureException == "FunctionLoadError: no such thing"


async def test_a_function_that_is_being_loaded_is_soon_ready(runtime: SparkRuntime, make: MakeSpec) -> None:
    spec = make(slow="yes")
    instance = await runtime.start(spec)
    with pytest.raises(RunNotYet):
        await instance.begin_run("r1")
    (spec.package / "slow").unlink()
    await instance_is_ready(instance)
    await instance.stop(30)


async def instance_is_ready(instance: SparkInstance) -> None:
    async def is_running() -> bool:
        return (await instance.status()).running

    await until(is_running)


async def test_a_run_that_fails_is_counted_with_its_traceback(runtime: SparkRuntime, make: MakeSpec) -> None:
    instance = await started(runtime, make(raises="Traceback (most recent call last):\nValueError: 7"))
    await instance.begin_run("r1")
    assert (await stage(instance, "failed")).error == "Traceback (most recent call last):\nValueError: 7"
    status = await instance.status()
    assert status.running
    assert status.numUserExceptions == 1
    assert status.latestUserExceptions[0].exceptionString == "Traceback (most recent call last):\nValueError: 7"
    await instance.stop(30)


async def test_a_host_that_is_killed_ends_what_was_busy_and_the_run_is_begun_again(
    runtime: SparkRuntime, make: MakeSpec
) -> None:
    busy_spec = make("f", tasks="2")
    busy = await started(runtime, busy_spec)
    idle = await started(runtime, make("g", tasks="0"))
    await busy.begin_run("r1")
    await stage(busy, "running")
    os.kill(runtime.host_pid, signal.SIGKILL)
    assert await busy.wait() == "the host process of Spark functions was terminated by SIGKILL"
    assert (await idle.status()).running
    again = await started(runtime, busy_spec)  # as its supervisor does
    (busy_spec.package / "go").write_text("all")
    assert (await stage(again, "done")).runId == "r1"
    await idle.begin_run("r2")
    await stage(idle, "done")
    assert (busy_spec.package / "runs").read_text() == "r1\nr1\n"
    await asyncio.gather(again.stop(30), idle.stop(30))


async def test_a_run_whose_host_dies_each_time_is_given_up(runtime: SparkRuntime, make: MakeSpec) -> None:
    spec = make(tasks="2")
    instance = await started(runtime, spec)
    await instance.begin_run("r1")
    for _ in range(RESUMES_MAX + 1):
        await stage(instance, "running")
        os.kill(runtime.host_pid, signal.SIGKILL)
        await instance.wait()
        instance = await started(runtime, spec)
    run = (await instance.status()).run
    assert (run.stage, run.runId) == ("failed", "r1")
    assert run.error == "giving up after 4 attempts; the last one ended with: the host process of Spark functions was" \
        " terminated by SIGKILL"  # fmt: skip

    async def is_kept() -> bool:  # what no driver could
        remembered = spec.package / "remembered"
        return remembered.exists() and remembered.read_text() == "r1 failed 0\n"

    await until(is_kept)
    await instance.begin_run("r2")
    await stage(instance, "running")
    await instance.stop(30)


async def test_a_host_that_has_nothing_to_do_for_long_ends_and_the_next_run_starts_another(
    runtime: SparkRuntime, make: MakeSpec, clock: Clock
) -> None:
    spec = make(tasks="1")
    instance = await started(runtime, spec)
    await instance.begin_run("r1")
    await stage(instance, "running")
    first = runtime.host_pid
    clock.now_s += 10_000
    await runtime.end_if_idle()
    assert runtime.host_pid == first  # busy
    (spec.package / "go").write_text("all")
    await stage(instance, "done")
    clock.now_s += 599
    await runtime.end_if_idle()
    assert runtime.host_pid == first
    clock.now_s += 2
    await runtime.end_if_idle()
    assert runtime.host_pid == 0
    assert not psutil.pid_exists(first)
    assert (await instance.status()).running
    await instance.begin_run("r2")
    await stage(instance, "done", tasks_done=1)
    assert runtime.host_pid not in (0, first)
    assert (await instance.status()).run.runId == "r2"
    await instance.stop(30)


async def test_without_java_or_pyspark_or_a_master_nothing_is_started(
    runtime: SparkRuntime, make: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = SparkRuntime(
        SparkConfig(data_dir=tmp_path / "away", master="spark://127.0.0.1:1", program=PROGRAM, starts_ahead=False)
    )
    with pytest.raises(SparkFailed, match=r"no Spark master answered .*correct spark://127\.0\.0\.1:1"):
        await away.start(make())
    with pytest.raises(InvalidConfig, match="Spark master 'mesos://a:1' is not supported"):
        SparkConfig(data_dir=tmp_path, master="mesos://a:1")
    monkeypatch.setattr("magnetar.spark.java.find_spec", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidConfig, match="no Java found"):
        await runtime.start(make())
    monkeypatch.setattr("magnetar.spark.source.requirements.find_spec", lambda name: None)
    with pytest.raises(InvalidConfig, match=r"pyspark is not installed: run pip install 'magnetar\[spark\]'"):
        await runtime.start(make())
    assert runtime.host_pid == 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("", ""),
        ("StateStoreFailed: the disk is full\nplan 3 is kept: the next run", "StateStoreFailed: the disk is full"),
        ("Traceback (most recent call last):\n  File\nValueError: 7", "ValueError: 7"),
        (
            "message 3:1:1 of in failed: Traceback (most recent call last):\n  File\nValueError: 7\nplan 1 is kept: go",
            "message 3:1:1 of in failed: ValueError: 7",
        ),
        (
            "[ERR] no: Traceback (most recent call last):\n  File\nWrong: int\n SQLSTATE: 38000\nplan 1 is kept: go",
            "[ERR] no: Wrong: int",
        ),
        ("[PATH_NOT_FOUND] no such path\n\nmore of Spark", "[PATH_NOT_FOUND] no such path"),
    ],
)
def test_an_error_is_told_in_one_line(error: str, reason: str) -> None:
    assert reason_of(error) == reason
