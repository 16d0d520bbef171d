"""The storage as the broker uses it: threads, an event loop and a real directory."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import subprocess
import sys
import threading
import tracemalloc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from magnetar.broker.storage import (
    EARLIEST,
    Congested,
    DiskFailure,
    LocalDisk,
    MemoryCursor,
    Position,
    Storage,
    StorageConfig,
    StoredEntry,
    TopicLog,
)
from magnetar.broker.storage.core import StorageCore
from magnetar.broker.storage.disk.disk import DiskFile
from magnetar.broker.storage.ledgers.ledger import Ledger
from magnetar.errors import ClosedError, DataDirectoryInUse, InvalidConfig, NotAllowed, StorageError, TopicTerminated
from magnetar.tasks import called_back

from tests.support.eventually import eventually

MIB = 1 << 20

SMALL = StorageConfig(journal_file_bytes=64 * 1024)
LOG = "persistent://public/default/t"


@asynccontextmanager
async def running(
    directory: Path,
    config: StorageConfig = SMALL,
    disk: LocalDisk | None = None,
) -> AsyncIterator[Storage]:
    storage = Storage.open(directory, config, disk, lambda: 1000.0)
    storage.attach(asyncio.get_running_loop())
    try:
        yield storage
    finally:
        await storage.close()


async def append(log: TopicLog, *payloads: bytes, times: list[int] | None = None) -> list[Position]:
    futures = []
    for index, payload in enumerate(payloads):
        future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        futures.append(future)

        def done(position: Position, error: Exception | None, future: asyncio.Future[Position] = future) -> None:
            if error is None:
                future.set_result(position)
            else:
                future.set_exception(error)

        log.append(payload, 2, times[index] if times else 7, done)
    return list(await asyncio.gather(*futures))


async def everything(log: TopicLog) -> list[StoredEntry]:
    entries: list[StoredEntry] = []
    position = EARLIEST
    while more := await log.load(position, 100, 10_000):
        entries += more
        position = log.next_position(more[-1].position)
    return entries


async def checkpoint(storage: Storage) -> None:
    done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    storage._checkpoint.begin(done.set_result)
    assert await done is None


async def test_entries_are_confirmed_in_order_and_read_after_a_restart(tmp_path: Path) -> None:
    payloads = [b"%d" % number for number in range(300)]
    async with running(tmp_path) as storage:
        log = storage.open_log(LOG)
        assert (log.entry_count, log.last_confirmed) == (0, EARLIEST)
        positions = await append(log, *payloads)
        assert positions == [Position(positions[0].ledger_id, number) for number in range(300)]
        assert log.last_confirmed == positions[-1]
        assert (log.entry_count, log.total_bytes) == (300, sum(map(len, payloads)))
        assert sum(ledger.totals.messages for ledger in log.ledgers_by_id.values()) == 600
        assert log.read(positions[10], 2, 1000) == [StoredEntry(p, payloads[p.entry_id], 2) for p in positions[10:12]]
        assert log.read(positions[10], 100, 5) == [StoredEntry(p, payloads[p.entry_id], 2) for p in positions[10:12]]
        assert storage._core.journal.groups < 30
    async with running(tmp_path) as storage:
        assert storage.log_names() == [LOG]
        log = storage.open_log(LOG)
        assert log.read(positions[0], 10, 1000) is None
        assert [entry.payload for entry in await everything(log)] == payloads
        assert log.read(positions[0], 10, 1000) is not None, "what was loaded is kept for a while"
        (later,) = await append(log, b"later")
        assert later.ledger_id > positions[-1].ledger_id
        assert log.next_position(positions[-1]) == later
        assert log.read(Position(positions[-1].ledger_id, 300), 10, 1000) == [StoredEntry(later, b"later", 2)]
        assert log.entries_between(positions[5], later) == 295


async def test_entry_is_not_seen_before_it_is_synced(tmp_path: Path) -> None:
    async with running(tmp_path, StorageConfig(journal_file_bytes=64 * 1024, sync_delay_s=0.05)) as storage:
        log = storage.open_log(LOG)
        appending = asyncio.ensure_future(append(log, b"x"))
        await asyncio.sleep(0)
        assert log.read(EARLIEST, 10, 1000) == []
        assert (log.entry_count, log.last_confirmed) == (0, EARLIEST)
        (position,) = await appending
        assert log.read(EARLIEST, 10, 1000) == [StoredEntry(position, b"x", 2)]


async def test_group_takes_everything_queued_during_the_sync_before(tmp_path: Path) -> None:
    async with running(tmp_path, StorageConfig(journal_file_bytes=1 << 20, sync_delay_s=0.02)) as storage:
        log = storage.open_log(LOG)
        groups = storage._core.journal.groups
        appends = []
        for number in range(200):
            appends.append(asyncio.ensure_future(append(log, b"%d" % number)))
            await asyncio.sleep(0)
        await asyncio.gather(*appends)
        assert storage._core.journal.groups - groups <= 6


async def test_no_file_is_touched_on_the_loops_thread(tmp_path: Path) -> None:
    loop_thread = threading.get_ident()
    touched: list[str] = []

    class Watched(LocalDisk):
        def __getattribute__(self, name: str) -> Any:
            if threading.get_ident() == loop_thread and not name.startswith("_") and watching:
                touched.append(name)
            return super().__getattribute__(name)

    watching = False
    async with running(tmp_path, SMALL, Watched()) as storage:
        watching = True
        log = storage.open_log(LOG)
        log.open_cursor("sub", EARLIEST)
        await append(log, *[bytes(9000)] * 20)
        await checkpoint(storage)
        log.cursors["sub"].acknowledge_up_to(log.last_confirmed)
        log.close_ledger()
        await append(log, b"x")
        await log.trim(0, 0)
        await log.position_before_time(10)
        await storage.delete_log(LOG)
        watching = False
    assert touched == []


async def test_cursor_changes_are_durable_when_told(tmp_path: Path) -> None:
    async with running(tmp_path) as storage:
        log = storage.open_log(LOG)
        positions = await append(log, *[b"x"] * 10)
        cursor = log.open_cursor("sub", EARLIEST, {"k": "v"})
        assert log.open_cursor("sub", log.last_confirmed) is cursor
        assert cursor.backlog_entries == 10
        told: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        cursor.acknowledge([(positions[0], None), (positions[5], None), (positions[7], (2,))], told.set_result)
        assert await told is None
    async with running(tmp_path) as storage:
        log = storage.open_log(LOG)
        cursor = log.cursors["sub"]
        assert (cursor.mark_delete, cursor.properties, cursor.backlog_entries) == (positions[0], {"k": "v"}, 8)
        assert cursor.acknowledged_ranges() == [(positions[5], positions[5])]
        assert cursor.remaining(positions[7]) == (2,)
        await cursor.reset(positions[3])
        assert (cursor.mark_delete, cursor.backlog_entries) == (positions[2], 7)
        await cursor.reset(EARLIEST)
        assert cursor.backlog_entries == 10
        await log.delete_cursor("sub")
        await log.delete_cursor("sub")
        assert MemoryCursor(log, "reader", log.last_confirmed).backlog_entries == 0
    async with running(tmp_path) as storage:
        assert storage.open_log(LOG).cursors == {}


async def test_ledgers_roll_over_and_retention_removes_their_files(tmp_path: Path) -> None:
    config = StorageConfig(journal_file_bytes=64 * 1024, max_ledger_entries=4)
    async with running(tmp_path, config) as storage:
        log = storage.open_log(LOG)
        positions = await append(log, *[b"%d" % number for number in range(10)])
        assert [(info.entries, info.is_open) for info in log.ledgers()] == [(4, False), (4, False), (2, True)]
        await checkpoint(storage)
        cursor = log.open_cursor("sub", EARLIEST)
        assert await log.trim(0, 0) == []
        cursor.acknowledge_up_to(positions[4])
        assert await log.trim(-1, -1) == []
        dropped = await log.trim(0, 0)
        assert dropped == [positions[0].ledger_id]
        assert (log.first_position, log.entry_count) == (positions[4], 6)
        assert [entry.position for entry in await everything(log)] == positions[4:]
    assert {path.stem for path in (tmp_path / "ledgers").iterdir()} == {str(p.ledger_id) for p in positions[4:]}


async def test_log_without_entries_left_knows_where_it_was(tmp_path: Path) -> None:
    async with running(tmp_path) as storage:
        log = storage.open_log(LOG)
        positions = await append(log, b"a", b"b")
        log.close_ledger()
        assert len(await log.trim(0, 0)) == 1
        assert (log.last_confirmed, log.entry_count, log.ledgers()) == (positions[-1], 0, ())
        assert log.open_cursor("sub", log.last_confirmed).backlog_entries == 0
    async with running(tmp_path) as storage:
        log = storage.open_log(LOG)
        assert log.last_confirmed == positions[-1]
        (later,) = await append(log, b"c")
        assert later.ledger_id > positions[-1].ledger_id
        assert log.cursors["sub"].backlog_entries == 1


async def test_ledger_ids_are_not_used_again_after_a_deletion(tmp_path: Path) -> None:
    seen: set[int] = set()
    for _ in range(4):
        async with running(tmp_path) as storage:
            (position,) = await append(storage.open_log(LOG), b"x")
            assert position.ledger_id not in seen
            seen.add(position.ledger_id)
            await storage.delete_log(LOG)
            assert not storage.has_log(LOG)
            await storage.delete_log(LOG)
        assert list((tmp_path / "ledgers").iterdir()) == []


async def test_deleted_and_terminated_logs_take_nothing_more(tmp_path: Path) -> None:
    async with running(tmp_path) as storage:
        log = storage.open_log(LOG)
        (position,) = await append(log, b"x")
        assert await log.terminate() == position
        with pytest.raises(TopicTerminated, match="accepts no more messages"):
            await append(log, b"y")
    async with running(tmp_path) as storage:
        log = storage.open_log(LOG)
        assert log.is_terminated
        await storage.delete_log(LOG)
        with pytest.raises(Exception, match="was deleted"):
            await append(log, b"y")
        assert not storage.open_log(LOG).is_terminated


async def test_empty_log_is_durable_once_created(tmp_path: Path) -> None:
    async with running(tmp_path) as storage:
        told: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        storage.open_log(LOG).create(told.set_result)
        storage.open_log("persistent://public/default/only-looked-at")
        assert await told is None
    async with running(tmp_path) as storage:
        assert storage.log_names() == [LOG]


@pytest.mark.parametrize("is_moved", [False, True])
async def test_position_before_a_time_is_exact_in_any_order_of_times(tmp_path: Path, is_moved: bool) -> None:
    config = StorageConfig(journal_file_bytes=64 * 1024, max_ledger_entries=3, tail_cache_bytes=0)
    async with running(tmp_path, config) as storage:
        log = storage.open_log(LOG)
        assert await log.position_before_time(5) == EARLIEST
        times = [10, 30, 20, 40, 25, 60, 50]
        positions = await append(log, *[b"x"] * 7, times=times)
        if is_moved:
            await checkpoint(storage)
        for time_ms in range(5, 65, 5):
            first = next((index for index, time in enumerate(times) if time >= time_ms), len(times))
            before = positions[first - 1] if first else log.before(EARLIEST)
            assert await log.position_before_time(time_ms) == before
            for after, position in enumerate(positions):
                later = next((i for i in range(after + 1, len(times)) if times[i] >= time_ms), len(times))
                assert await log.position_before_time(time_ms, position) == positions[later - 1]


@pytest.mark.parametrize("is_dropped", [True, False])
async def test_a_search_by_time_goes_on_behind_a_ledger_that_retention_drops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_dropped: bool
) -> None:
    async with running(tmp_path, StorageConfig(journal_file_bytes=64 * 1024, max_ledger_entries=3)) as storage:
        log = storage.open_log(LOG)
        positions = await append(log, *[b"x"] * 5, times=[10, 20, 30, 40, 50])
        first = next(iter(log.ledgers_by_id.values()))
        search = StorageCore.time_search

        def failing(self: StorageCore, ledger: Ledger, time_ms: int, start: int) -> Callable[[], int | None]:
            def fail() -> int | None:
                first.is_dropped = is_dropped
                raise StorageError("the file is gone")

            return fail if ledger is first else search(self, ledger, time_ms, start)

        monkeypatch.setattr(StorageCore, "time_search", failing)
        if is_dropped:
            assert await log.position_before_time(15) == log.before(positions[3])
        else:
            with pytest.raises(StorageError, match="the file is gone"):
                await log.position_before_time(15)
        first.is_dropped = False  # the rest of the storage still counts it


async def test_memory_keeps_only_the_tail_and_the_rest_is_loaded(tmp_path: Path) -> None:
    config = StorageConfig(journal_file_bytes=64 * 1024, tail_cache_bytes=20_000, read_cache_bytes=20_000)
    async with running(tmp_path, config) as storage:
        log = storage.open_log(LOG)
        payloads = [b"%04d" % number + bytes(1000) for number in range(200)]
        positions = await append(log, *payloads)
        assert storage._core.memory.bytes > 200_000, "not moved yet"
        await checkpoint(storage)
        assert storage._core.memory.bytes <= 20_000
        assert storage._core.memory.unmoved_bytes == 0
        assert log.read(positions[0], 5, 10_000) is None
        assert log.read(positions[-5], 5, 10_000) is not None
        assert [entry.payload for entry in await everything(log)] == payloads


async def test_small_entries_count_with_what_they_take(tmp_path: Path) -> None:
    config = StorageConfig(tail_cache_bytes=0, checkpoint_interval_s=3600)
    async with running(tmp_path, config) as storage:
        log = storage.open_log(LOG)
        await append(log, b"first")
        before = storage._core.memory.unmoved_bytes
        tracemalloc.start()
        try:
            await append(log, *[bytes(34) for _ in range(5000)])
            gc.collect()
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        counted = storage._core.memory.unmoved_bytes - before
        assert 0.7 * taken < counted < 1.6 * taken
        await checkpoint(storage)
        assert storage._core.memory.unmoved_bytes == storage._core.memory.bytes == 0
        log.core.memory.drop_ledger(next(iter(log.ledgers_by_id.values())))
        assert storage._core.memory.unmoved_bytes == storage._core.memory.bytes == 0


async def test_a_checkpoint_begins_before_small_entries_fill_memory(tmp_path: Path) -> None:
    config = StorageConfig(checkpoint_interval_s=3600, checkpoint_bytes=MIB, unmoved_bytes=2 * MIB)
    async with running(tmp_path, config) as storage:
        log = storage.open_log(LOG)
        for _ in range(10):
            await append(log, *[b"x"] * 500)
        assert storage._core.journal.written_bytes < config.checkpoint_bytes

        async def is_moved() -> bool:
            return storage._core.memory.unmoved_bytes <= config.unmoved_bytes // 2

        await eventually(is_moved, "checkpoint")


async def test_moved_entries_leave_memory_without_the_garbage_collector(tmp_path: Path) -> None:
    """It comes rarely while batches are large, and memory grew to several times what may be unmoved."""
    config = StorageConfig(journal_file_bytes=64 * 1024, tail_cache_bytes=0)
    payloads = [b"%04d" % number + bytes(1000) for number in range(20)]
    unused = [sys.getrefcount(payload) for payload in payloads]
    gc.disable()
    try:
        async with running(tmp_path, config) as storage:
            await append(storage.open_log(LOG), *payloads)
            assert min(sys.getrefcount(payload) for payload in payloads) > max(unused)
            await checkpoint(storage)
            assert [sys.getrefcount(payload) for payload in payloads] == unused
    finally:
        gc.enable()


async def test_the_system_keeps_in_memory_only_what_a_consumer_has_yet_to_read(tmp_path: Path) -> None:
    class Watched(LocalDisk):
        def forget_cached(self, path: str) -> None:
            forgotten.append(path)

    forgotten: list[str] = []
    async with running(tmp_path, StorageConfig(), Watched()) as storage:
        expected = []
        for name, payload_bytes, acknowledged, is_forgotten in (
            ("no consumer", 50_000, None, True),
            ("all read", 50_000, 19, True),
            ("half read", 50_000, 9, False),
            ("too little to matter", 100, 19, False),
        ):
            log = storage.open_log(name)
            cursor = None if acknowledged is None else log.open_cursor("sub", EARLIEST)
            positions = await append(log, *[bytes(payload_bytes)] * 20)
            if cursor is not None and acknowledged is not None:
                cursor.acknowledge_up_to(positions[acknowledged])
            if is_forgotten:
                expected.append(f"{tmp_path}/ledgers/{positions[0].ledger_id}.ledger")
        await checkpoint(storage)
        await checkpoint(storage)  # ends after all that the first one gave to the background
        assert forgotten == expected


async def test_thousand_logs_need_few_open_files(tmp_path: Path) -> None:
    async with running(tmp_path) as storage:
        logs = [storage.open_log(f"t-{number}") for number in range(1000)]
        before = len(os.listdir("/proc/self/fd"))
        await asyncio.gather(*(append(log, b"x" * 50) for log in logs))
        await checkpoint(storage)
        await asyncio.gather(*(log.position_before_time(8) for log in logs))
        assert len(os.listdir("/proc/self/fd")) <= before + 8


async def test_journal_files_are_recycled(tmp_path: Path) -> None:
    async with running(tmp_path) as storage:
        log = storage.open_log(LOG)
        for _ in range(12):
            await append(log, *[bytes(8000)] * 14)
            await checkpoint(storage)
        assert len(list((tmp_path / "journal").iterdir())) <= 7


async def test_congested_storage_tells_when_there_is_room_again(tmp_path: Path) -> None:
    config = StorageConfig(journal_file_bytes=1 << 20, queue_bytes=50_000, sync_delay_s=0.01)
    async with running(tmp_path, config) as storage:
        drained = asyncio.Event()
        storage.on_drained(drained.set)
        log = storage.open_log(LOG)
        appending = [asyncio.ensure_future(append(log, bytes(10_000))) for _ in range(18)]
        await asyncio.sleep(0)
        assert storage.is_congested
        assert not drained.is_set()
        await drained.wait()
        await asyncio.gather(*appending)
        assert not storage.is_congested
        results = await asyncio.gather(*(append(log, bytes(10_000)) for _ in range(40)), return_exceptions=True)
        refused = [result for result in results if isinstance(result, Congested)]
        assert len(refused) >= 10
        assert "bytes are waiting to be written to the journal, above the limit of 200000: publish more slowly" in str(
            refused[0]
        )


async def test_broken_callback_keeps_no_other_receipt_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(position: Position, error: Exception | None) -> None:
        raise RuntimeError("broken callback")

    async with running(tmp_path) as storage:
        log = storage.open_log(LOG)
        log.append(b"x", 1, 1, broken)
        await append(log, b"y")
    assert "broken callback" in caplog.text


class Mistaken(LocalDisk):
    """A disk on which opening files of a kind raises what nobody foresaw."""

    def __init__(self, suffix: str, mistake: BaseException) -> None:
        super().__init__()
        self.suffix = suffix
        self.mistake = mistake
        self.is_on = False

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        if self.is_on and path.endswith(self.suffix):
            raise self.mistake
        return super().open(path, create=create)


async def use(storage: Storage, suffix: str) -> None:
    """Have a file of that kind opened, and raise what becomes of it."""
    if suffix == ".journal":
        await append(storage.open_log(LOG), b"x")
    else:
        await called_back(storage._checkpoint.begin)


@pytest.mark.parametrize("suffix", [".journal", ".ledger", "catalogue.new"])
async def test_thread_that_ends_is_reported_and_nobody_waits_for_ever(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    disk = Mistaken(suffix, SystemExit("a mistake"))
    storage = Storage.open(tmp_path, SMALL, disk)
    storage.attach(asyncio.get_running_loop())
    if suffix != ".journal":
        await append(storage.open_log(LOG), b"x")
    disk.is_on = True
    with pytest.raises(StorageError, match=r"a storage thread failed: SystemExit\('a mistake'\); restart the broker"):
        await use(storage, suffix)
    with pytest.raises(StorageError, match="restart the broker"):
        await append(storage.open_log(LOG), b"y")
    assert "restart the broker" in str(storage.failure)
    with pytest.raises(StorageError, match="restart the broker"):
        await storage.close()
    Storage.open(tmp_path).abandon()


@pytest.mark.parametrize("suffix", [".journal", ".ledger", "catalogue.new"])
async def test_mistake_in_a_thread_is_an_error_that_is_seen_and_tried_again(suffix: str, tmp_path: Path) -> None:
    disk = Mistaken(suffix, ZeroDivisionError("a mistake"))
    async with running(tmp_path, SMALL, disk) as storage:
        log = storage.open_log(LOG)
        if suffix != ".journal":
            await append(log, b"x")
        disk.is_on = True
        for _ in range(3):
            with pytest.raises(StorageError, match=r"ZeroDivisionError\('a mistake'\); retrying"):
                await use(storage, suffix)
        disk.is_on = False
        await checkpoint(storage)
        await append(log, b"y")
        assert log.entry_count == (1 if suffix == ".journal" else 2)


async def test_state_that_cannot_be_written_down_fails_its_checkpoint_and_not_the_next_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as storage:
        log = storage.open_log(LOG)
        await append(log, b"x")
        log.is_terminated = b"\xff"  # type: ignore[assignment]
        log.has_changed()
        for _ in range(3):
            with pytest.raises(StorageError, match="cannot write a checkpoint: TypeError"):
                await called_back(storage._checkpoint.begin)
        assert "checkpoint failed, retrying" in caplog.text
        log.is_terminated = False
        log.has_changed()
        await checkpoint(storage)
        await append(log, b"y")
        log.is_terminated = b"\xff"  # type: ignore[assignment]
        log.has_changed()
        with pytest.raises(StorageError, match="cannot write a checkpoint"):
            await storage.close()
    async with running(tmp_path) as storage:
        log = storage.open_log(LOG)
        assert [entry.payload for entry in await everything(log)] == [b"x", b"y"]


async def test_text_that_cannot_be_stored_is_refused_before_anything_changes(tmp_path: Path) -> None:
    async with running(tmp_path) as storage:
        for bad in ("\ud800", b"\xff"):
            with pytest.raises(NotAllowed, match="topic name is not valid UTF-8"):
                storage.open_log(bad)  # type: ignore[arg-type]
            log = storage.open_log(LOG)
            with pytest.raises(NotAllowed, match="subscription name"):
                log.open_cursor(bad, EARLIEST)  # type: ignore[arg-type]
            with pytest.raises(NotAllowed, match="property"):
                log.open_cursor("s", EARLIEST, {bad: "v"})  # type: ignore[dict-item]
            with pytest.raises(NotAllowed, match="value of subscription property 'k'"):
                log.open_cursor("s", EARLIEST, {"k": bad})  # type: ignore[dict-item]
        assert not log.cursors
        assert storage.log_names() == []
        await checkpoint(storage)


async def test_closed_storage_refuses_and_closing_twice_is_fine(tmp_path: Path) -> None:
    async with running(tmp_path) as storage:
        log = storage.open_log(LOG)
    await storage.close()
    with pytest.raises(StorageError, match=f"storage {tmp_path} is closed"):
        await append(log, b"too late")
    with pytest.raises(ClosedError, match=f"storage {tmp_path} is closed"):
        storage.open_log(LOG)


def test_directory_in_use_by_another_process_is_named_with_its_pid(tmp_path: Path) -> None:
    code = (
        "import sys; from magnetar.broker.storage import Storage; storage = Storage.open(sys.argv[1]);"
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(DataDirectoryInUse, match=f"in use by process {holder.pid}: stop that broker"):
            Storage.open(tmp_path)
        holder.kill()
    Storage.open(tmp_path).abandon()


def test_directory_that_cannot_be_made_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(DiskFailure, match=r"cannot create the data directory .*use another data directory"):
            Storage.open(path)


def test_directory_without_write_permission_is_refused(tmp_path: Path) -> None:
    class ReadOnly(LocalDisk):
        def make_directory(self, path: str) -> None:
            raise PermissionError(13, "Permission denied", path)

    with pytest.raises(DiskFailure, match=r"Permission denied \(EACCES\); grant this user write access"):
        Storage.open(tmp_path, disk=ReadOnly())


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("group_bytes", 0),
        ("retry_s", 0),
        ("sync_delay_s", -1),
        ("unmoved_bytes", 10),
        ("retry_s", math.nan),
        ("max_ledger_age_s", math.inf),
        ("sync_delay_s", math.nan),
    ],
)
def test_settings_out_of_range_are_refused(setting: str, value: float) -> None:
    settings: dict[str, Any] = {setting: value}
    with pytest.raises(InvalidConfig, match=f"{setting}={value}"):
        StorageConfig(**settings)


async def test_logs_that_are_made_and_deleted_leave_nothing_in_memory(tmp_path: Path) -> None:
    async with running(tmp_path) as storage:
        logs: list[weakref.ref[TopicLog]] = []
        for number in range(400):
            log = storage.open_log(f"t{number}")
            await append(log, b"x")
            logs.append(weakref.ref(log))
            await storage.delete_log(log.name)
        storage.take_touched()
        await checkpoint(storage)
        del log
        gc.collect()
        assert sum(log() is not None for log in logs) <= 150
