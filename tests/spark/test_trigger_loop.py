"""Runs that begin by themselves in a worker whose host has no Spark in it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from magnetar.config.cron import MINUTE_MS
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.spark import instance as instance_module
from magnetar.runtime.spark.host_config import SparkConfig
from magnetar.runtime.spark.instance import SparkInstance
from magnetar.runtime.spark.runtime import SparkRuntime
from magnetar.wire.functions_pb2 import FunctionMetaData, FunctionStatus

from tests.spark.fake_host import PROGRAM
from tests.spark.specs import MakeSpec
from tests.support.eventually import until

pytestmark = [pytest.mark.spark, pytest.mark.slow]
IDLE_S = 60
HOUR_MS = 60 * MINUTE_MS
BEGIN_MS = 1_800_000_000_000 // HOUR_MS * HOUR_MS


class Times:
    def __init__(self) -> None:
        self.now_ms = BEGIN_MS + 1

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
async def runtime(tmp_path: Path, times: Times, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SparkRuntime]:
    config = SparkConfig(
        data_dir=tmp_path / "data", master="local[2]", program=PROGRAM, starts_ahead=False, idle_s=IDLE_S
    )
    it = SparkRuntime(config, clock=lambda: times.now_ms / 1000, time_ms=times)
    monkeypatch.setattr(instance_module, "now_ms", times)  # by which runs begin and end
    yield it
    await it.close()


def triggered(spec: InstanceSpec, **options: object) -> InstanceSpec:
    metadata = FunctionMetaData()
    metadata.CopyFrom(spec.metadata)
    metadata.functionDetails.customRuntimeOptions = json.dumps({"runtimeEnv": "spark", **options})
    return replace(spec, metadata=metadata)


async def started(runtime: SparkRuntime, spec: InstanceSpec) -> SparkInstance:
    instance = await runtime.start(spec)

    async def is_running() -> bool:
        return (await instance.status()).running

    await until(is_running)
    return instance


def begun(spec: InstanceSpec) -> int:
    path = spec.package / "runs"
    return len(path.read_text().split()) if path.exists() else 0


async def set_to(times: Times, instance: SparkInstance, now_ms: int) -> None:
    times.now_ms = now_ms
    assert instance._triggers is not None
    instance._triggers.changed()  # else the clock is looked at within half a minute


async def ended(instance: SparkInstance, spec: InstanceSpec, count: int) -> FunctionStatus.Run:
    async def have_ended() -> bool:
        return begun(spec) == count and bool((await instance.status()).run.endedMs)

    await until(have_ended)
    return (await instance.status()).run


async def test_cron_begins_runs_over_the_end_of_an_idle_host_and_missed_times_are_one_run(
    runtime: SparkRuntime, make: MakeSpec, times: Times
) -> None:
    spec = triggered(make(served=str(times.now_ms)), cron="*/5 * * * *")
    instance = await started(runtime, spec)
    await set_to(times, instance, BEGIN_MS + 5 * MINUTE_MS - 1)
    await instance.begin_run("by-hand")
    await ended(instance, spec, 1)
    await set_to(times, instance, BEGIN_MS + 5 * MINUTE_MS)
    run = await ended(instance, spec, 2)
    assert run.startedMs == BEGIN_MS + 5 * MINUTE_MS
    await set_to(times, instance, times.now_ms + 2 * IDLE_S * 1000)
    await runtime.end_if_idle()
    assert not runtime.host_pid
    await set_to(times, instance, BEGIN_MS + HOUR_MS)
    run = await ended(instance, spec, 3)
    assert run.startedMs == BEGIN_MS + HOUR_MS
    assert runtime.host_pid
    await instance.stop(30)
    times.now_ms += 3 * HOUR_MS
    again = await started(runtime, spec)
    run = await ended(again, spec, 4)
    assert run.startedMs == times.now_ms
    await again.stop(30)
    once_more = await started(runtime, spec)
    await once_more.begin_run("later")  # it would be refused, or not be the next, had a time come since
    await ended(once_more, spec, 5)
    assert (spec.package / "runs").read_text().split()[-1] == "later"
    await once_more.stop(30)


async def test_a_backlog_begins_a_run_and_no_run_follows_from_less(
    runtime: SparkRuntime, make: MakeSpec, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    backlog, asked = [-1], list[int]()

    def answer(_: InstanceSpec) -> int:
        asked.append(backlog[0])
        return backlog[0]

    monkeypatch.setattr(instance_module, "backlog_entries", answer)
    spec = triggered(make(), backlogTrigger=100)
    instance = await started(runtime, spec)

    async def says_why() -> bool:
        return "waiting for the backlog from the broker" in (await instance.status()).failureException

    await until(says_why)
    backlog[0] = 99
    await set_to(times, instance, times.now_ms + HOUR_MS)

    async def has_asked() -> bool:
        return 99 in asked

    await until(has_asked)
    assert begun(spec) == 0
    backlog[0] = 100
    await set_to(times, instance, times.now_ms + HOUR_MS)
    await ended(instance, spec, 1)
    assert (await instance.status()).failureException == ""
    await instance.stop(30)


async def test_a_run_that_fails_is_shown_and_tried_again_after_a_pause(
    runtime: SparkRuntime, make: MakeSpec, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_module, "backlog_entries", lambda _: 5)
    spec = triggered(make(raises="ValueError: no such number"), continuousIntervalMs=1000)
    instance = await started(runtime, spec)
    run = await ended(instance, spec, 1)
    assert run.stage == "failed"

    async def says_when() -> bool:
        return "the last run failed; the next one starts at 20" in (await instance.status()).failureException

    await until(says_when)
    assert (await instance.status()).failureException.endswith(": ValueError: no such number")
    await set_to(times, instance, times.now_ms + 1999)
    (spec.package / "raises").unlink()
    await until(says_when)
    assert begun(spec) == 1
    await set_to(times, instance, times.now_ms + 1)
    assert (await ended(instance, spec, 2)).stage == "done"

    async def says_nothing() -> bool:
        return not (await instance.status()).failureException

    await until(says_nothing)
    await set_to(times, instance, times.now_ms + 1000)
    await ended(instance, spec, 3)
    assert (await instance.status()).failureException == ""
    await instance.stop(30)


async def test_a_loop_that_fails_says_so_and_begins_anew(
    runtime: SparkRuntime, make: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [RuntimeError("a mistake of ours"), 7]

    def answer(_: InstanceSpec) -> int:
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(found, Exception):
            raise found
        return int(str(found))

    seen: list[str] = []
    monkeypatch.setattr(instance_module, "backlog_entries", answer)
    spec = triggered(make(), backlogTrigger=7)
    instance = await started(runtime, spec)

    async def is_done() -> bool:
        seen.append((await instance.status()).failureException)
        return begun(spec) == 1

    await until(is_done)
    assert any("automatic runs are suspended after an error: RuntimeError: a mistake of ours" in text for text in seen)
    await instance.stop(30)
