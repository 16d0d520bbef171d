"""Power cuts below the table service: what was answered is there, what was not is there whole or not at all."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import NamedTuple

import pytest
from magnetar.errors import StateStoreFailed
from magnetar.state import database
from magnetar.state.client import Increment, OutboxEntry, Position, Put
from magnetar.state.codec import encode_changes, encode_outbox, encode_position
from magnetar.state.database import FILE
from magnetar.state.store import TableStore
from magnetar.wire import state_pb2 as pb

from .conftest import TABLE
from .lossy_disk import FULL, IOERR_FSYNC, IOERR_TRUNCATE, IOERR_WRITE, LossyDisk, installed

WRITERS = 3


class Crash(NamedTuple):
    """The files that a power cut left, and how many calls of each writer were answered and begun then."""

    files: dict[str, bytes]
    answered: tuple[int, ...]
    begun: tuple[int, ...]


class Calls:
    """Writers whose calls come in pairs of keys that must stay equal."""

    def __init__(self, store: TableStore, seed: int) -> None:
        self.answered = [0] * WRITERS
        self.begun = [0] * WRITERS
        self._store = store
        self._seed = seed

    def run(self, calls: int) -> None:
        threads = [threading.Thread(target=self._write, args=(number, calls)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _write(self, number: int, calls: int) -> None:
        rng = random.Random(self._seed + number)
        position = None
        for call in range(1, calls + 1):
            left, right = b"left-%d" % number, b"right-%d" % number
            keys = [b"%d" % rng.randrange(3000) for _ in range(rng.randrange(6))]
            filler = [Put(key, rng.randbytes(rng.randrange(600))) for key in keys]
            changes = encode_changes([Increment(left, 1), *filler, Increment(right, 1)])
            self.begun[number] = call
            if number == 0:
                new = Position(1, call)
                self._store.commit(
                    pb.CommitRequest(
                        table=TABLE,
                        function_uuid="u",
                        partition="p",
                        expected=encode_position(position),
                        new=encode_position(new),
                        changes=changes,
                        outbox=encode_outbox([OutboxEntry("o", call, 1, b"x" * 100, new)]),
                        published=encode_position(position),
                    )
                )
                position = new
            else:
                self._store.apply(
                    pb.ApplyRequest(table=TABLE, writer=b"%016d" % number, sequence=call, changes=changes)
                )
            self.answered[number] = call


def check(directory: Path, crash: Crash) -> None:
    """Open what a crash left, and compare."""
    directory.mkdir()
    for name, content in crash.files.items():
        (directory / name).write_bytes(content)
    store = TableStore.open(directory)
    try:
        for number in range(WRITERS):
            left, right = store.read(TABLE, [b"left-%d" % number, b"right-%d" % number])
            made = (left.number or 0) if left else 0
            assert made == ((right.number or 0) if right else 0), "a call by half"
            assert crash.answered[number] <= made <= crash.begun[number]
            if number == 0 and made:
                position, outbox = store.open_partition(TABLE, "u", "p")
                assert position == Position(1, made)
                assert [entry.sequence_id for entry in outbox] == [made]
            elif number:
                changes = encode_changes([Increment(b"left-%d" % number, 1)])
                request = pb.ApplyRequest(table=TABLE, writer=b"%016d" % number, sequence=made or 1, changes=changes)
                store.apply(request)
                after = store.read(TABLE, [b"left-%d" % number])[0]
                assert after is not None
                assert after.number == (made or 1), "a repeated call was made again"
    finally:
        store.close()


@pytest.mark.parametrize(
    ("calls", "crashes"),
    [
        pytest.param(60, 12, marks=pytest.mark.slow),
        pytest.param(600, 300, marks=[pytest.mark.crash, pytest.mark.timeout(600)]),
    ],
)
def test_power_cuts_lose_nothing_that_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int, crashes: int
) -> None:
    rng = random.Random(calls)
    monkeypatch.setattr(database, "WAL_PAGES_MAX", 40)  # checkpoints now and then
    live = tmp_path / "live"
    live.mkdir()
    disk = LossyDisk(live)
    found: list[Crash] = []
    with installed(disk) as works:
        if not works:
            pytest.skip("Python's sqlite3 does not use the system's libsqlite3 here, so nothing can be put below it")
        store = TableStore.open(live)
        traffic = Calls(store, calls)

        def maybe_crash() -> None:
            # Calls that come together are one transaction, so how many operations there are is up to the machine: some
            # crashes must have come by the time that a part of the calls was answered.
            is_late = len(found) < min(crashes, sum(traffic.answered) * crashes // (2 * calls * WRITERS))
            if len(found) < crashes and (is_late or rng.random() < crashes / (calls * 30)):
                answered = tuple(traffic.answered)  # first: what is answered after this may be in the image or not
                found.append(Crash(disk.crash(rng), answered, tuple(traffic.begun)))

        disk.before = maybe_crash
        traffic.run(calls)
        store.close()
    assert traffic.answered == [calls] * WRITERS
    assert len(found) >= crashes // 4
    for index, crash in enumerate(found):
        check(tmp_path / f"crash-{index}", crash)


def count_with_a_failure(directory: Path, fail_at: int, failures: tuple[int, int, int], calls: int) -> bool:
    """Make calls above a disk that fails once, then cut the power; return whether it came to the failure."""
    live = directory / "live"
    live.mkdir(parents=True)
    disk = LossyDisk(live)
    disk.failures = failures
    with installed(disk):
        store = TableStore.open(live)
        start = disk.operations
        disk.fail_at = start + fail_at
        failed = 0
        for call in range(1, calls + 1):
            changes = encode_changes(
                [Increment(b"left-1", 1), Put(b"%d" % call, bytes(5000)), Increment(b"right-1", 1)]
            )
            request = pb.ApplyRequest(table=TABLE, writer=b"%016d" % 1, sequence=call, changes=changes)
            try:
                store.apply(request)
            except StateStoreFailed:
                failed += 1
                value = store.read(TABLE, [b"left-1"])[0]
                assert ((value.number or 0) if value else 0) == call - 1
                store.apply(request)
        # A failure while the log is put into the database is nobody's: the call was answered from the log.
        assert failed <= 1
        crash = Crash(disk.crash(random.Random(fail_at)), (0, calls, 0), (0, calls, 0))
        store.close()
    check(directory / "after a power cut", crash)
    # The log is still there if the failure came while it was put into the database at the end.
    live_files = {path.name: path.read_bytes() for path in (live / FILE, live / f"{FILE}-wal") if path.exists()}
    check(directory / "after a stop", Crash(live_files, (0, calls, 0), (0, calls, 0)))
    return disk.operations >= disk.fail_at


@pytest.mark.parametrize("failures", [(FULL, IOERR_TRUNCATE, IOERR_FSYNC), (IOERR_WRITE, IOERR_TRUNCATE, IOERR_FSYNC)])
@pytest.mark.parametrize(
    ("calls", "step"),
    [
        pytest.param(12, 9, marks=pytest.mark.slow),
        pytest.param(12, 1, marks=[pytest.mark.crash, pytest.mark.timeout(600)]),
    ],
)
def test_every_operation_of_the_disk_may_fail_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: tuple[int, int, int], calls: int, step: int
) -> None:
    monkeypatch.setattr(database, "WAL_PAGES_MAX", 20)
    probe = LossyDisk(tmp_path)
    with installed(probe) as works:
        if not works:
            pytest.skip("Python's sqlite3 does not use the system's libsqlite3 here")
    fail_at = 1
    while count_with_a_failure(tmp_path / str(fail_at), fail_at, failures, calls):
        fail_at += step
    assert fail_at > 100


@pytest.mark.slow
def test_store_without_syncs_would_be_found_out(tmp_path: Path) -> None:
    """The disk of these tests is worth something: it shows a commit that is answered before it was synced."""
    live = tmp_path / "live"
    live.mkdir()
    disk = LossyDisk(live)
    with installed(disk) as works:
        if not works:
            pytest.skip("Python's sqlite3 does not use the system's libsqlite3 here")
        store = TableStore.open(live)
        store._connection.execute("PRAGMA synchronous = NORMAL")
        traffic = Calls(store, 1)
        traffic.run(5)
        crash = Crash(disk.crash(random.Random(1)), tuple(traffic.answered), tuple(traffic.begun))
        store.close()
    with pytest.raises((AssertionError, StateStoreFailed)):
        check(tmp_path / "crash", crash)
