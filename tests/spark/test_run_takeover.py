"""A run whose worker is gone goes on where its function is next, under the same id; without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from magnetar.instance.identity import table_of
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.spark.host_config import SparkConfig
from magnetar.runtime.spark.instance import SparkInstance
from magnetar.runtime.spark.runtime import SparkRuntime
from magnetar.spark.jobs.plans import ATTEMPTS_MAX, RunRequest
from magnetar.state.client import TableClient
from magnetar.state.server import TableServer
from magnetar.wire.functions_pb2 import FunctionMetaData

from tests.spark.fake_host import PROGRAM
from tests.spark.specs import MakeSpec
from tests.support.eventually import until

pytestmark = pytest.mark.spark


@pytest.fixture
def tables(state: TableServer) -> Iterator[TableClient]:
    with contextlib.closing(TableClient(state.url)) as client:
        yield client


@pytest.fixture
def spec(make: MakeSpec, tables: TableClient) -> InstanceSpec:
    spec = make()
    tables.drop(table_of(spec.metadata))
    return spec


def changed(spec: InstanceSpec, **fields: int) -> InstanceSpec:
    metadata = FunctionMetaData()
    metadata.CopyFrom(spec.metadata)
    for name, value in fields.items():
        setattr(metadata, name, value)
    return replace(spec, metadata=metadata)


def test_a_run_that_nobody_ended_is_found(tables: TableClient, spec: InstanceSpec) -> None:
    assert RunRequest(tables, spec).find() == ""
    dead = RunRequest(tables, spec)
    dead.note("r1")
    heir = RunRequest(tables, spec)
    assert heir.find() == "r1"
    heir.note("r1")
    dead.forget()  # it wakes up, and has nothing to say any more
    assert RunRequest(tables, spec).find() == "r1"
    heir.forget()
    assert RunRequest(tables, spec).find() == ""


@pytest.mark.parametrize("fields", [{"version": 7}, {"cursorIncarnation": 1}])
def test_a_function_that_was_changed_or_reset_begins_nothing_by_itself(
    tables: TableClient, spec: InstanceSpec, fields: dict[str, int]
) -> None:
    RunRequest(tables, spec).note("r1")
    assert RunRequest(tables, changed(spec, **fields)).find() == ""


def test_a_run_that_ends_its_workers_is_not_begun_for_ever(tables: TableClient, spec: InstanceSpec) -> None:
    for _ in range(ATTEMPTS_MAX):
        RunRequest(tables, spec).note("r1")
    assert RunRequest(tables, spec).find() == ""
    RunRequest(tables, spec).note("r2")
    assert RunRequest(tables, spec).find() == "r2"


def runtime_in(directory: Path) -> SparkRuntime:
    return SparkRuntime(SparkConfig(data_dir=directory, master="local[2]", program=PROGRAM, starts_ahead=False))


async def stage(instance: SparkInstance, wanted: str) -> str:
    async def is_there() -> bool:
        return (await instance.status()).run.stage == wanted

    await until(is_there)
    return (await instance.status()).run.runId


async def test_an_instance_goes_on_with_what_another_worker_has_begun(make: MakeSpec, tmp_path: Path) -> None:
    spec = make(tasks="1", go="all", unfinished="r1")
    runtime = runtime_in(tmp_path / "heir")
    try:
        instance = await runtime.start(spec)
        assert await stage(instance, "done") == "r1"
        (spec.package / "unfinished").unlink()
        await instance.begin_run("r2")
        assert await stage(instance, "done") == "r2"
    finally:
        await runtime.close()
    assert (spec.package / "runs").read_text().split() == ["r1", "r2"]


async def test_a_run_that_was_cancelled_here_is_not_begun_by_a_restart(make: MakeSpec, tmp_path: Path) -> None:
    spec = make(tasks="1", unfinished="")
    runtime = runtime_in(tmp_path / "worker")
    try:
        instance = await runtime.start(spec)

        async def is_ready() -> bool:
            return (await instance.status()).running

        await until(is_ready)
        await instance.begin_run("r1")
        await stage(instance, "running")
        (spec.package / "unfinished").write_text("r1")
        await instance.stop(5)
        again = await runtime.start(spec)

        async def is_ready_again() -> bool:
            return (await again.status()).running

        await until(is_ready_again)
        assert await stage(again, "cancelled") == "r1"
    finally:
        await runtime.close()
    assert (spec.package / "runs").read_text().split() == ["r1"]
