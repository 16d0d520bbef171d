"""Each operation of a run fails once: a clear error, and the data opens and is right afterwards."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest
from magnetar.broker.storage import DiskFailure, Position, Storage, StorageConfig, StoredEntry, TopicLog
from magnetar.errors import StorageError
from magnetar.testing.simulated_disk import Operation, SimulatedDisk

from tests.support.stepper import Stepper, load_now, step_by_hand

DIRECTORY = "/data"
TINY = StorageConfig(
    journal_file_bytes=24 * 1024,
    group_bytes=8 * 1024,
    checkpoint_bytes=64 * 1024,
    max_ledger_entries=7,
    tail_cache_bytes=4 * 1024,
    read_cache_bytes=4 * 1024,
    retry_s=0.001,
)


class Run:
    """A fixed series of calls, noting what was confirmed and what was refused."""

    def __init__(self, disk: SimulatedDisk, config: StorageConfig = TINY) -> None:
        self.disk = disk
        self.config = config
        self.entries: dict[Position, bytes] = {}
        self.refused: set[bytes] = set()
        self.order: dict[bytes, int] = {}
        self.acknowledged: set[Position] = set()
        self.errors: list[Exception] = []
        self.now_s = 0.0

    def open(self) -> tuple[Storage, Stepper]:
        storage = Storage.open(DIRECTORY, self.config, self.disk, self.clock, random.Random(1), self.clock)
        return storage, step_by_hand(storage, random.Random(2))

    def clock(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def append(self, log: TopicLog, payload: bytes) -> None:
        def done(position: Position, error: Exception | None) -> None:
            if error is None:
                assert position not in self.entries
                self.entries[position] = payload
            else:
                self.refused.add(payload)
                self.errors.append(error)

        self.order[payload] = len(self.order)
        log.append(payload, 1, 1, done)

    def acknowledge(self, log: TopicLog, position: Position) -> None:
        def done(error: Exception | None) -> None:
            if error is None:
                self.acknowledged.add(position)
            else:
                self.errors.append(error)

        if "sub" not in log.cursors:  # the disk refused it
            log.open_cursor("sub", Position(-1, -1), {}, self.note)
        if "sub" in log.cursors:
            log.cursors["sub"].acknowledge([(position, None)], done)

    def note(self, error: Exception | None) -> None:
        if error is not None:
            self.errors.append(error)

    def work(self, storage: Storage, stepper: Stepper, name: str) -> None:
        """Appends, acknowledgements, two checkpoints, a trim and a deletion, with turns of the lanes between them."""
        log = storage.open_log(name)
        log.open_cursor("sub", Position(-1, -1), {}, self.note)
        for number in range(24):
            self.append(log, f"{name} {number} ".encode() + bytes(number * 150))
            if number % 3 == 2:
                stepper.run()
            mine = [position for position, payload in self.entries.items() if payload.startswith(name.encode())]
            if number % 5 == 4 and mine:
                self.acknowledge(log, random.Random(number).choice(mine))
            if number in (8, 20):
                storage._checkpoint.begin()
                self.append(log, f"{name} during checkpoint {number}".encode())
                stepper.run()
            storage.maintain()
        other = storage.open_log(f"{name} to delete")
        other.append(b"to be deleted", 1, 1, lambda _, error: self.note(error))
        storage._checkpoint.begin()
        stepper.run()
        storage.delete_log_with(other.name, self.note)
        stepper.run()

    def heal(self, storage: Storage, stepper: Stepper) -> None:
        """Once the disk works, storage must take changes again by itself."""
        for attempt in ("the failure may come only now", "but here it has to work"):
            errors = len(self.errors)
            storage.maintain()
            stepper.run()
            self.append(storage.open_log("after"), b"after the failure: " + attempt.encode())
            stepper.run()
            if storage.failure is None and len(self.errors) == errors:
                return
        raise AssertionError(f"does not work again: {storage.failure}")

    def load(self, log: TopicLog, start: Position) -> list[StoredEntry]:
        try:
            return load_now(log, start, 5, 5000)
        except DiskFailure as exc:
            self.errors.append(exc)
            return load_now(log, start, 5, 5000)

    def check(self, storage: Storage) -> None:
        """Everything confirmed is there, in order; what was refused is there at most as it was."""
        found: list[tuple[Position, bytes]] = []
        for name in storage.log_names():
            log = storage.open_log(name)
            position = Position(-1, -1)
            part: list[tuple[Position, bytes]] = []
            while more := self.load(log, position):
                part += [(entry.position, entry.payload) for entry in more]
                position = log.next_position(more[-1].position)
            order = [self.order[payload] for _, payload in part]
            assert order == sorted(set(order))
            if "sub" in log.cursors:
                held = {position for position, _ in part}
                for position in self.acknowledged & held:
                    assert log.cursors["sub"].is_acknowledged(position)
            found += part
        places = dict(found)
        for position, payload in self.entries.items():
            assert places.get(position) == payload, f"{position} lost or changed"
        for position, payload in found:
            assert position in self.entries or payload in self.refused


def one_failure(number: int, code: int) -> Operation | None:
    """Run with operation ``number`` failing; return which it was, None if the run has fewer."""
    disk = SimulatedDisk(number)
    run = Run(disk)
    failing: list[Operation] = []
    disk.watch = lambda operation: failing.append(operation) if operation.number == number else None
    disk.failures[number] = code
    try:
        storage, stepper = run.open()
    except StorageError as exc:
        run.errors.append(exc)
        storage, stepper = run.open()
    run.work(storage, stepper, "first")
    run.heal(storage, stepper)
    run.check(storage)
    for error in run.errors:
        assert isinstance(error, DiskFailure), repr(error)
        assert error.error_number == code
        assert error.path.startswith(DIRECTORY)
        assert errno.errorcode[code] in str(error)
    for _ in range(2):
        disk.power_failure()
        storage, stepper = run.open()
        run.check(storage)
    run.work(storage, stepper, "second")
    run.check(storage)
    held = {f"{i.id}.ledger" for name in storage.log_names() for i in storage.open_log(name).ledgers()}
    assert {path.rpartition("/")[2] for path in disk.paths() if path.endswith(".ledger")} <= held
    assert disk.failures == {}
    return failing[0] if failing else None


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_each_operation_may_fail_once(code: int) -> None:
    kinds: set[str] = set()
    number = 1
    while True:
        try:
            failed = one_failure(number, code)
        except BaseException as exc:
            exc.add_note(f"operation {number} with {errno.errorcode[code]}")
            raise
        if failed is None:
            break
        kinds.add(failed.kind)
        number += 1
    assert number > 100
    assert kinds >= {"open", "write", "sync", "rename", "preallocate", "sync_directory", "remove", "read", "lock"}


def test_full_disk_refuses_appends_and_serves_reads_until_there_is_room() -> None:
    disk = SimulatedDisk(3, capacity_bytes=150_000)
    run = Run(disk, replace(TINY, checkpoint_bytes=16 * 1024, unmoved_bytes=32 * 1024))
    storage, stepper = run.open()
    log = storage.open_log("t")
    for number in range(200):
        run.append(log, b"%d " % number + bytes(2000))
        stepper.run()
        storage.maintain()
        stepper.run()
    assert storage.failure is not None
    assert run.errors
    assert all("No space left on device (ENOSPC)" in str(error) and "free space" in str(error) for error in run.errors)
    assert isinstance(storage.failure, DiskFailure)
    run.check(storage)
    confirmed = len(run.entries)
    assert confirmed > 20

    disk.capacity_bytes = None
    storage.maintain()
    stepper.run()
    assert storage.failure is None
    run.append(log, b"there is room again")
    stepper.run()
    assert len(run.entries) == confirmed + 1
    disk.power_failure()
    run.check(run.open()[0])


def test_failed_sync_is_never_taken_for_done() -> None:
    for seed in range(30):
        disk = SimulatedDisk(seed)
        run = Run(disk)
        storage, stepper = run.open()
        log = storage.open_log("t")
        run.append(log, b"before")
        stepper.run()

        def fail_next_sync(operation: Operation, disk: SimulatedDisk = disk) -> None:
            if operation.kind == "sync":
                disk.failures[operation.number] = errno.EIO
                disk.watch = None

        disk.watch = fail_next_sync
        run.append(log, b"lost" + bytes(20_000))
        run.append(log, b"behind it")
        stepper.run()
        assert run.refused == {b"lost" + bytes(20_000), b"behind it"}
        run.append(log, b"refused at once")
        assert b"refused at once" in run.refused
        storage.maintain()
        stepper.run()
        run.append(log, b"after")
        stepper.run()
        disk.power_failure()
        storage, _ = run.open()
        payloads = [entry.payload for name in storage.log_names() for entry in _all(storage.open_log(name))]
        assert payloads == [b"before", b"after"]


def _all(log: TopicLog) -> list[StoredEntry]:
    entries: list[StoredEntry] = []
    position = Position(-1, -1)
    while more := load_now(log, position, 100, 10**9):
        entries += more
        position = log.next_position(more[-1].position)
    return entries
