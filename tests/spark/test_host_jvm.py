"""The host process of Spark functions with a real JVM: started late, never left behind, and missed when it dies."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.spark.host_config import SparkConfig
from magnetar.runtime.spark.instance import SparkInstance
from magnetar.runtime.spark.runtime import SparkRuntime

from tests.spark.counting_host import LATE, PROGRAM, ROWS
from tests.spark.specs import MakeSpec
from tests.spark.test_host import started
from tests.support.calm import Calm
from tests.support.eventually import until
from tests.support.servers import is_alive, survivors
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
START_S = 240.0
ENDS_S = 30.0


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[SparkRuntime]:
    config = SparkConfig(
        data_dir=tmp_path / "data", master="local[2]", heap="512m", program=PROGRAM, starts_ahead=False
    )
    it = SparkRuntime(config)
    yield it
    family = family_of(it.host_pid)
    await it.close()
    await gone(family)


def family_of(pid: int) -> list[psutil.Process]:
    """The host, its JVM, and Spark's Python workers."""
    if not pid:
        return []
    host = psutil.Process(pid)
    return [host, *host.children(recursive=True)]


def jvm_of(pid: int) -> psutil.Process | None:
    return next((one for one in family_of(pid) if one.name() == "java"), None)


async def gone(processes: list[psutil.Process]) -> None:
    async def are_gone() -> bool:
        return not any(map(is_alive, processes))

    await until(are_gone, ENDS_S)


async def in_tasks(runtime: SparkRuntime, spec: InstanceSpec) -> list[psutil.Process]:
    """Wait until a task runs; return the whole family."""

    async def has_begun() -> bool:
        return (spec.package / "begun").exists()

    await until(has_begun, START_S)
    return family_of(runtime.host_pid)


async def done(instance: SparkInstance) -> int:
    async def is_over() -> bool:
        return (await instance.status()).run.stage not in ("planning", "running")

    await until(is_over, START_S)
    run = (await instance.status()).run
    assert (run.stage, run.error) == ("done", "")
    return run.rows


async def stopped_within_s(instance: SparkInstance) -> float:
    """Stop it; return how long that took but for what kept the machine busy."""
    calm = Calm()
    await instance.stop(30)
    return calm.calm_s


async def test_one_jvm_starts_with_the_first_run_and_serves_all_until_the_host_ends(
    runtime: SparkRuntime, make: MakeSpec, tmp_path: Path
) -> None:
    spec = make()
    instance = await started(runtime, spec)
    assert jvm_of(runtime.host_pid) is None

    await instance.begin_run("r1")  # a run that is cancelled while Spark starts
    assert await stopped_within_s(instance) < 2
    again = await started(runtime, spec)
    assert (await again.status()).run.stage == "cancelled"

    await again.begin_run("r2")
    assert await done(again) == ROWS
    jvm = jvm_of(runtime.host_pid)
    assert jvm is not None
    assert "-Xmx512m" in jvm.cmdline()

    (spec.package / "begun").unlink()
    (spec.package / "slow").touch()
    await again.begin_run("r3")  # and one that is cancelled while a task runs
    family = await in_tasks(runtime, spec)
    assert await stopped_within_s(again) < 2
    (spec.package / "slow").unlink()
    again = await started(runtime, spec)
    await again.begin_run("r4")
    assert await done(again) == ROWS
    assert jvm_of(runtime.host_pid) == jvm
    await again.stop(30)

    await runtime.close()
    await gone(family)
    assert not list((tmp_path / "data" / "spark").glob("driver-*"))


async def test_a_jvm_is_there_before_the_first_run_and_ends_when_no_run_comes(tmp_path: Path, make: MakeSpec) -> None:
    config = SparkConfig(data_dir=tmp_path / "data", master="local[2]", heap="512m", program=PROGRAM)
    now_s = [0.0]
    runtime = SparkRuntime(config, lambda: now_s[0])
    try:
        instance = await started(runtime, make())

        async def has_python_workers() -> bool:
            return len(family_of(runtime.host_pid)) >= 5  # host, JVM, fork server, one for each core

        await until(has_python_workers, START_S)
        family = family_of(runtime.host_pid)
        await runtime.end_if_idle()
        assert jvm_of(runtime.host_pid) in family
        now_s[0] = config.idle_s
        await runtime.end_if_idle()
        await gone(family)
        assert (await instance.status()).running
    finally:
        await runtime.close()


async def test_a_host_that_is_killed_leaves_nothing(runtime: SparkRuntime, make: MakeSpec) -> None:
    spec = make(slow="yes")
    instance = await started(runtime, spec)
    await instance.begin_run("r1")
    family = await in_tasks(runtime, spec)
    os.kill(runtime.host_pid, signal.SIGKILL)
    async with asyncio.timeout(ENDS_S):
        assert (await instance.wait()).startswith("the host process of Spark functions was terminated by SIGKILL")
    await gone(family)


@pytest.mark.parametrize("program", [PROGRAM, LATE], ids=["at once", "late"])
async def test_a_run_whose_jvm_is_killed_is_finished_by_the_next_whoever_sees_the_end_first(
    make: MakeSpec, tmp_path: Path, program: tuple[str, ...]
) -> None:
    runtime = SparkRuntime(
        SparkConfig(data_dir=tmp_path / "data", master="local[2]", heap="512m", program=program, starts_ahead=False)
    )
    try:
        spec = make(slow="yes")
        instance = await started(runtime, spec)
        await instance.begin_run("r1")
        family = await in_tasks(runtime, spec)
        jvm = jvm_of(runtime.host_pid)
        assert jvm is not None
        jvm.kill()
        async with asyncio.timeout(ENDS_S):
            assert (await instance.wait()).startswith("Spark's JVM exited unexpectedly")
        run = (await instance.status()).run
        assert (run.runId, run.stage, run.error) == ("r1", "running", "")
        await gone(family)
        if program == LATE:
            (spec.package / "slow").unlink()
            again = await started(runtime, spec)
            assert await done(again) == ROWS
            assert (await again.status()).run.runId == "r1"
    finally:
        await runtime.close()


def test_a_worker_that_is_killed_takes_host_and_jvm_with_it(make: MakeSpec, tmp_path: Path) -> None:
    spec, spec_file = make(slow="yes"), tmp_path / "spec"
    spec_file.write_text(spec.to_json())
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.worker_with_host", str(tmp_path / "data"), str(spec_file)], cwd=ROOT
    )
    try:
        wait_for(lambda: (spec.package / "begun").exists(), "a task that runs", START_S)
        family = psutil.Process(worker.pid).children(recursive=True)
        assert len(family) >= 4  # the host, the JVM, Spark's daemon of Python workers, a worker
    finally:
        worker.kill()
        worker.wait()
    assert survivors(family, ENDS_S) == []


async def test_what_a_dead_driver_left_behind_is_removed_at_the_next_start(runtime: SparkRuntime) -> None:
    directory = runtime_directory(runtime)
    left = directory / "driver-999999999-abc"
    left.mkdir(parents=True)
    ours = directory / f"driver-{os.getpid()}-abc"
    ours.mkdir()
    await runtime.warm_up()
    assert not left.exists()
    assert ours.exists()


def runtime_directory(runtime: SparkRuntime) -> Path:
    return runtime.config.session().directory
