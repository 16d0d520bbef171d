"""What changes meet while the disk fails and the storage heals: memory never has more than the disk will."""

from __future__ import annotations

import errno
import random

import pytest
from magnetar.broker.storage import DiskFailure, Position, Storage, StorageConfig
from magnetar.errors import StorageError
from magnetar.testing.simulated_disk import Operation, SimulatedDisk

from tests.support.stepper import Stepper, load_now, step_by_hand

CONFIG = StorageConfig(journal_file_bytes=64 * 1024)


class Place:
    """A storage on a simulated disk whose next journal sync can be made to fail."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(1)
        self.wall_s = self.monotonic_s = 1000.0
        self.told: list[Exception | None] = []
        self.storage, self.stepper = self.open()

    def open(self) -> tuple[Storage, Stepper]:
        storage = Storage.open("/d", CONFIG, self.disk, lambda: self.wall_s, random.Random(1), lambda: self.monotonic_s)
        return storage, step_by_hand(storage, random.Random(2))

    def fail(self) -> None:
        """Have the journal fail."""

        def watch(operation: Operation) -> None:
            if operation.kind == "sync" and operation.path.endswith(".journal"):
                self.disk.failures[operation.number] = errno.EIO
                self.disk.watch = None

        self.disk.watch = watch

    def begin_healing(self) -> None:
        """Take the state that the healing checkpoint will write; nothing of it is written yet."""
        self.monotonic_s += 10
        self.storage.maintain()

    def restart(self) -> None:
        self.disk.power_failure()
        self.storage, self.stepper = self.open()

    def done(self, error: Exception | None) -> None:
        self.told.append(error)

    def append(self, name: str, payload: bytes) -> None:
        self.storage.open_log(name).append(payload, 1, 1, lambda _, error: self.done(error))

    def payloads(self, name: str) -> list[bytes]:
        log = self.storage.open_log(name)
        return [entry.payload for entry in load_now(log, log.first_position, 100, 10**9)]


def healing() -> Place:
    """A storage with one log that is between the capture of the healing checkpoint and its success."""
    place = Place()
    place.storage.open_log("old").open_cursor("sub", Position(-1, -1))
    for number in range(4):
        place.append("old", b"%d" % number)
    place.stepper.run()
    place.fail()
    place.append("old", b"lost")
    place.stepper.run()
    assert isinstance(place.storage.failure, DiskFailure)
    place.told.clear()
    place.begin_healing()
    return place


def finish(place: Place) -> None:
    place.stepper.run()
    assert place.storage.failure is None


def test_log_whose_creation_was_refused_is_created_by_the_next_attempt() -> None:
    place = healing()
    place.storage.open_log("new").create(place.done)
    place.append("newer", b"refused")
    assert [type(error) for error in place.told] == [DiskFailure, DiskFailure]
    assert place.storage.log_names() == ["old"]
    finish(place)
    place.storage.open_log("new").create(place.done)
    place.append("new", b"receipted")
    place.append("newer", b"receipted, too")
    place.stepper.run()
    assert place.told[2:] == [None, None, None]
    place.restart()
    assert place.payloads("new") == [b"receipted"]
    assert place.payloads("newer") == [b"receipted, too"]


def test_creation_that_failed_with_its_group_is_not_remembered() -> None:
    place = Place()
    place.append("old", b"x")
    place.stepper.run()
    place.fail()
    place.storage.open_log("new").create(place.done)
    place.storage.open_log("with-sub").open_cursor("sub", Position(-1, -1), {}, place.done)
    place.storage.open_log("silent").open_cursor("sub", Position(-1, -1))
    place.append("appended", b"lost")
    place.stepper.run()
    assert place.storage.log_names() == ["old"]
    assert not place.storage.open_log("with-sub").cursors
    assert not place.storage.open_log("silent").cursors
    place.begin_healing()
    finish(place)
    place.storage.open_log("with-sub").open_cursor("sub", Position(-1, -1), {}, place.done)
    place.append("appended", b"receipted")
    place.stepper.run()
    place.restart()
    assert sorted(place.storage.log_names()) == ["appended", "old", "with-sub"]
    assert list(place.storage.open_log("with-sub").cursors) == ["sub"]
    assert place.payloads("appended") == [b"receipted"]


def test_refused_changes_leave_memory_as_it_was() -> None:
    place = healing()
    log = place.storage.open_log("old")
    cursor = log.cursors["sub"]
    cursor.reset_with(Position(1, 3), place.done)
    log.open_cursor("other", Position(-1, -1), {}, place.done)
    log.delete_cursor_with("sub", place.done)
    log.terminate_with(place.done)
    log.close_ledger()
    assert log.trim_with(0, 0, place.done) == []
    place.storage.delete_log_with("old", place.done)
    assert len(place.told) == 6
    assert all(error is place.storage.failure for error in place.told)
    with pytest.raises(DiskFailure):
        log.open_cursor("third", Position(-1, -1))
    assert place.storage.log_names() == ["old"]
    assert list(log.cursors) == ["sub"]
    assert cursor.mark_delete == Position(-1, -1) or cursor.backlog_entries == 4
    assert not log.is_terminated
    finish(place)
    place.restart()
    assert place.payloads("old") == [b"0", b"1", b"2", b"3"]
    assert place.storage.open_log("old").cursors["sub"].backlog_entries == 4


@pytest.mark.parametrize("has_receipt", [False, True])
def test_acknowledgements_made_during_healing_are_durable_soon_after_it(has_receipt: bool) -> None:
    place = healing()
    log = place.storage.open_log("old")
    log.cursors["sub"].acknowledge([(Position(1, 1), None)], place.done if has_receipt else None)
    log.cursors["sub"].note(Position(1, 0), {"producer": 7})
    finish(place)
    place.restart()
    cursor = place.storage.open_log("old").cursors["sub"]
    assert cursor.mark_delete == Position(1, 1)
    assert cursor.numbers == {"producer": 7}


def test_entries_stay_while_the_disk_does_not_know_that_they_were_acknowledged() -> None:
    place = healing()
    log = place.storage.open_log("old")
    log.cursors["sub"].note(Position(1, 3), {"producer": 7})
    while place.storage.failure is not None:
        place.stepper.step()
    log.close_ledger()
    assert log.trim_with(0, 0, place.done) == [], "a crash would bring back the numbers of before, without the entries"
    finish(place)
    assert log.trim_with(0, 0, place.done) == [1]


def test_setting_the_clock_back_delays_neither_healing_nor_checkpoints() -> None:
    place = Place()
    place.wall_s -= 10**6
    place.append("old", b"x")
    place.stepper.run()
    place.monotonic_s += CONFIG.checkpoint_interval_s
    place.storage.maintain()
    place.stepper.run()
    assert place.storage._checkpoint.completed == 1
    for _ in range(2):
        place.fail()
        place.append("old", b"y")
        place.stepper.run()
        assert place.storage.failure is not None
        place.wall_s -= 10**6
        place.begin_healing()
        finish(place)


def test_deleted_log_takes_no_subscription_and_no_end() -> None:
    place = Place()
    log = place.storage.open_log("old")
    log.create(place.done)
    log.open_cursor("sub", Position(-1, -1))
    place.storage.delete_log_with("old", place.done)
    log.open_cursor("other", Position(-1, -1), {}, place.done)
    log.terminate_with(place.done)
    log.delete_cursor_with("sub", place.done)
    with pytest.raises(StorageError, match="log old was deleted: reopen it"):
        log.open_cursor("third", Position(-1, -1))
    place.stepper.run()
    assert [error is None for error in place.told] == [False, False, True, True, True]
    place.restart()
    assert place.storage.log_names() == []
