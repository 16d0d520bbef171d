"""The host process of Spark functions with a real JVM: started late, never left behind, and missed when it dies."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from magnetar.runtime.spark.runtime import SparkConfig, SparkInstance, SparkRuntime
from magnetar.runtime.spec import InstanceSpec

from tests.runtime.conftest import until
from tests.spark.counting_host import LATE, PROGRAM, ROWS
from tests.spark.specs import MakeSpec
from tests.spark.test_host import started
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(180)]
ROOT = Path(__file__).parents[2]
START_S = 120.0
ENDS_S = 30.0


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[SparkRuntime]:
    config = SparkConfig(data_dir=tmp_path / "data", master="local[2]", heap="512m", program=PROGRAM)
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
        return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)

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


async def test_the_jvm_starts_with_the_first_run_and_ends_with_the_host(
    runtime: SparkRuntime,
    make: MakeSpec,
    tmp_path: Path,
) -> None:
    instance = await started(runtime, make())
    assert jvm_of(runtime.host_pid) is None
    await instance.begin_run("r1")
    assert await done(instance) == ROWS
    jvm = jvm_of(runtime.host_pid)
    assert jvm is not None
    assert "-Xmx512m" in jvm.cmdline()
    await instance.begin_run("r2")
    assert await done(instance) == ROWS
    assert jvm_of(runtime.host_pid) == jvm
    await instance.stop(5)
    family = family_of(runtime.host_pid)
    await runtime.close()
    await gone(family)
    assert not list((tmp_path / "data" / "spark").glob("driver-*"))


async def test_a_run_is_cancelled_while_spark_starts(runtime: SparkRuntime, make: MakeSpec) -> None:
    spec = make()
    instance = await started(runtime, spec)
    await instance.begin_run("r1")
    began_s = time.monotonic()
    await instance.stop(10)
    assert time.monotonic() - began_s < 3
    again = await started(runtime, spec)
    assert (await again.status()).run.stage == "cancelled"
    await again.begin_run("r2")
    assert await done(again) == ROWS
    await again.stop(5)


async def test_a_run_is_cancelled_within_a_second_and_the_session_goes_on(
    runtime: SparkRuntime,
    make: MakeSpec,
) -> None:
    spec = make(slow="yes")
    instance = await started(runtime, spec)
    await instance.begin_run("r1")
    await in_tasks(runtime, spec)
    jvm = jvm_of(runtime.host_pid)
    began_s = time.monotonic()
    await instance.stop(10)
    assert time.monotonic() - began_s < 3  # a second, on a machine that is not busy
    (spec.package / "slow").unlink()
    again = await started(runtime, spec)
    await again.begin_run("r2")
    assert await done(again) == ROWS
    assert jvm_of(runtime.host_pid) == jvm
    await again.stop(5)


@pytest.mark.parametrize("victim", ["host", "jvm"])
async def test_a_driver_that_is_killed_leaves_nothing_and_its_run_is_finished_by_the_next(
    runtime: SparkRuntime,
    make: MakeSpec,
    victim: str,
) -> None:
    spec = make(slow="yes")
    instance = await started(runtime, spec)
    await instance.begin_run("r1")
    family = await in_tasks(runtime, spec)
    jvm = jvm_of(runtime.host_pid)
    assert jvm is not None
    os.kill(runtime.host_pid if victim == "host" else jvm.pid, signal.SIGKILL)
    async with asyncio.timeout(ENDS_S):
        reason = await instance.wait()
    assert reason.startswith(
        "the host process of Spark functions was ended by SIGKILL" if victim == "host" else "the JVM of Spark ended by"
    )
    await gone(family)
    (spec.package / "slow").unlink()
    again = await started(runtime, spec)
    assert await done(again) == ROWS
    assert (await again.status()).run.runId == "r1"
    await again.stop(5)


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
    _, alive = psutil.wait_procs(family, timeout=ENDS_S)
    assert not alive


async def test_a_run_that_fails_of_a_dead_jvm_before_its_end_is_seen_is_begun_again_too(
    make: MakeSpec, tmp_path: Path
) -> None:
    config = SparkConfig(data_dir=tmp_path / "data", master="local[2]", heap="512m", program=LATE)
    runtime = SparkRuntime(config)
    try:
        spec = make(slow="yes")
        instance = await started(runtime, spec)
        await instance.begin_run("r1")
        await in_tasks(runtime, spec)
        jvm = jvm_of(runtime.host_pid)
        assert jvm is not None
        jvm.kill()
        async with asyncio.timeout(ENDS_S):
            assert (await instance.wait()).startswith("the JVM of Spark ended by itself")
        run = (await instance.status()).run
        assert (run.stage, run.error) == ("running", "")
    finally:
        await runtime.close()


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
