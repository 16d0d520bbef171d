"""A package that somebody names while it is being removed for want of a name: it stays, or is stored again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from magnetar.errors import ProducerBusy
from magnetar.instance.loading.requirements import Installer, digest_of
from magnetar.metadata.functions import FunctionMetadataManager, FunctionRequest
from magnetar.metadata.packages import MODULES_SUFFIX, NAMED_S, PackageStore
from magnetar.metadata.replicated_log import LogRecord
from magnetar.wire.functions_pb2 import FunctionDetails, FunctionMetaData
from magnetar.worker.functions.package_cleanup import KEEP_UNNAMED_S, PackageCleanup
from magnetar.worker.functions.package_index import PackageIndex, PackageName

from tests.metadata.memory_log import MemoryLog

PREFIX = "persistent://public/functions/package-"
ID = "a" * 64
NAME = PackageName("function", "t", "n", "f", "1")


class Broker:
    """One package topic, whose removal takes until it may go."""

    def __init__(self) -> None:
        self.topics_there = {PREFIX + ID}
        self.is_removing, self.may_go = asyncio.Event(), asyncio.Event()

    async def topics(self, _namespace: str) -> list[str]:
        return sorted(self.topics_there)

    async def delete_topic(self, topic: str) -> None:
        self.is_removing.set()
        await self.may_go.wait()
        self.topics_there.discard(topic)


class SharedLog:
    """The names of packages, which one worker at a time writes, and each reads when it catches up."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.holder = ""
        self._readers: dict[str, tuple[PackageIndex, int]] = {}

    def of(self, worker: str) -> Any:
        return _ItsLog(self, worker)

    def read_by(self, index: PackageIndex) -> None:
        self._readers[index._writer_name] = (index, 0)

    def deliver(self, worker: str) -> None:
        index, begin = self._readers[worker]
        for number in range(begin, len(self.records)):
            index.log.apply((1, number), *self.records[number])
        self._readers[worker] = index, len(self.records)


class _ItsLog:
    def __init__(self, shared: SharedLog, worker: str) -> None:
        self._shared, self._worker = shared, worker

    async def catch_up(self) -> None:
        self._shared.deliver(self._worker)

    async def open_writer(self, _: str) -> Any:
        if self._shared.holder:
            raise ProducerBusy(f"{self._shared.holder} writes")
        self._shared.holder = self._worker
        return self

    async def append(self, records: Sequence[LogRecord]) -> tuple[int, int]:
        self._shared.records += records
        self._shared.deliver(self._worker)
        return 1, len(self._shared.records) - 1

    async def close(self) -> None:
        self._shared.holder = ""


class World:
    """A leader with a log of its own, and its cleanup of packages."""

    def __init__(self, directory: Path) -> None:
        self.broker = Broker()
        self.storage = MemoryLog()
        self.metadata = FunctionMetadataManager(self.storage, lambda change: self.named.add(ID))
        self.packages = PackageStore(directory, None)  # type: ignore[arg-type]
        self.packages.prepare()
        self.named: set[str] = set()
        self.names = SharedLog()
        self.index = PackageIndex(self.names.of("leader"), "leader", lambda ids: self.package_cleanup.notice(ids))
        self.names.read_by(self.index)
        self.package_cleanup = PackageCleanup(
            self.packages, self.broker, PREFIX, lambda: self.named.union(self.index.package_ids()), lambda: True,  # type: ignore[arg-type]
            (self.index.undecided, self.metadata.log.undecided), Installer(directory.parent / "installed"),
        )  # fmt: skip

    async def name_it(self) -> None:
        metadata = FunctionMetaData(functionDetails=FunctionDetails(tenant="t", namespace="n", name="f"))
        await self.storage.lead(self.metadata.log)
        await self.metadata.submit(FunctionRequest(metadata, "r"))


@contextlib.asynccontextmanager
async def an_hour_later(world: World) -> AsyncIterator[asyncio.Task[None]]:
    await world.package_cleanup.tidy(0.0)
    task = asyncio.create_task(world.package_cleanup.tidy(KEEP_UNNAMED_S))
    try:
        yield task
    finally:
        world.broker.may_go.set()
        await task


async def test_a_record_waits_for_the_removal_so_that_whoever_wrote_it_sees_what_is_gone(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with an_hour_later(world):
        await world.broker.is_removing.wait()
        naming = asyncio.create_task(world.name_it())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not naming.done(), "named while it was being removed"
        world.broker.may_go.set()
        await naming
    assert world.broker.topics_there == set()


async def test_a_package_that_is_about_to_be_named_stays(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.broker.may_go.set()
    with world.packages.used(ID):
        async with an_hour_later(world):
            pass
        assert world.broker.topics_there == {PREFIX + ID}
    assert world.packages.in_use() == set()


async def test_a_package_that_got_a_name_meanwhile_stays(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.broker.may_go.set()
    await world.package_cleanup.tidy(0.0)
    async with world.metadata.log.undecided():
        tidying = asyncio.create_task(world.package_cleanup.tidy(KEEP_UNNAMED_S))
        await asyncio.sleep(0.05)
        world.named.add(ID)
    await tidying
    assert world.broker.topics_there == {PREFIX + ID}


async def test_a_package_that_had_a_name_between_two_looks_has_another_hour(tmp_path: Path) -> None:
    """Who named it trusts for a while that it is there, and does not look at its topic."""
    world = World(tmp_path)
    world.broker.may_go.set()
    await world.package_cleanup.tidy(0.0)
    world.package_cleanup.notice([ID])
    await world.package_cleanup.tidy(KEEP_UNNAMED_S)
    assert world.broker.topics_there == {PREFIX + ID}
    await world.package_cleanup.tidy(KEEP_UNNAMED_S * 2)
    assert world.broker.topics_there == set()


async def test_a_package_that_had_a_name_right_before_its_removal_has_another_hour(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.broker.may_go.set()
    await world.package_cleanup.tidy(0.0)
    async with world.metadata.log.undecided():
        tidying = asyncio.create_task(world.package_cleanup.tidy(KEEP_UNNAMED_S))
        await asyncio.sleep(0.05)
        world.package_cleanup.notice([ID])
    await tidying
    assert world.broker.topics_there == {PREFIX + ID}


async def test_an_upload_to_another_worker_waits_for_the_removal_of_its_content(tmp_path: Path) -> None:
    """So its second look, after its record, shows what is gone, and it is stored again."""
    world = World(tmp_path)
    other = PackageIndex(world.names.of("other"), "other")
    world.names.read_by(other)
    async with an_hour_later(world):
        await world.broker.is_removing.wait()
        naming = asyncio.create_task(other.change(NAME, lambda _: {"packageId": ID}))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not naming.done(), "named while it was being removed"
        world.broker.may_go.set()
        await naming
    assert world.broker.topics_there == set()


async def test_the_content_of_a_name_that_the_leader_has_not_read_yet_stays(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.broker.may_go.set()
    other = PackageIndex(world.names.of("other"), "other")
    world.names.read_by(other)
    await world.package_cleanup.tidy(0.0)
    await other.change(NAME, lambda _: {"packageId": ID})
    await world.package_cleanup.tidy(KEEP_UNNAMED_S)
    assert world.broker.topics_there == {PREFIX + ID}


def test_a_package_that_had_a_name_is_there_for_as_long_as_nobody_looks_again() -> None:
    assert NAMED_S * 10 <= KEEP_UNNAMED_S


async def test_a_refused_package_goes_at_once_unless_something_else_needs_it(tmp_path: Path) -> None:
    world = World(tmp_path)

    def unpacked() -> None:
        for directory in (world.packages.directory_of(ID), tmp_path / f"{ID}{MODULES_SUFFIX}"):
            directory.mkdir(exist_ok=True)
            (directory / "f.py").write_text("")

    unpacked()
    world.named.add(ID)
    await world.package_cleanup.refused(ID)
    assert world.packages.local_ids() == [ID], "a function has it"
    world.named.clear()
    with world.packages.used(ID):
        await world.package_cleanup.refused(ID)
        assert world.packages.local_ids() == [ID], "somebody else is deploying it"
    await world.package_cleanup.refused(ID)
    assert world.packages.local_ids() == []


async def test_what_was_installed_goes_when_no_package_here_asks_for_it(tmp_path: Path) -> None:
    world = World(tmp_path / "packages")
    package = world.packages.directory_of(ID)
    (package / "src").mkdir(parents=True)
    (package / "requirements.txt").write_text("numpy==2.0")
    installed = world.package_cleanup.installer.directory
    needed = installed / digest_of(package / "requirements.txt")
    for directory in (needed, installed / "f" / "numpy", installed / ".fresh-0"):
        directory.mkdir(parents=True)
    world.broker.may_go.set()
    await world.package_cleanup.tidy(0.0)
    assert list(installed.iterdir()) == [needed]
    await world.package_cleanup.tidy(KEEP_UNNAMED_S)
    assert (package.exists(), list(installed.iterdir())) == (False, [])
