"""Logs that nobody uses are lines of the catalogue, and whole when somebody asks for them."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from magnetar.broker.storage import EARLIEST, Position, Storage, StorageConfig, TopicLog
from magnetar.testing.simulated_disk import SimulatedDisk

from tests.support.stepper import Stepper, load_now, step_by_hand

LOGS = 20


def opened(disk: SimulatedDisk) -> tuple[Storage, Stepper]:
    storage = Storage.open("/d", StorageConfig(journal_file_bytes=65536), disk, lambda: 1.0, random.Random(1))
    return storage, step_by_hand(storage, random.Random(1))


def checkpoint(storage: Storage, stepper: Stepper) -> None:
    told: list[Exception | None] = []
    storage._checkpoint.begin(told.append)
    stepper.run()
    assert told == [None]
    storage.take_touched()


def fill(storage: Storage, stepper: Stepper) -> None:
    for number in range(LOGS):
        log = storage.open_log(f"t{number}")
        log.append(b"%d" % number, 1, 1, lambda *_: None)
        log.open_cursor("sub", EARLIEST)
    stepper.run()
    for number in range(LOGS):
        storage.open_log(f"t{number}").close_ledger()


@contextmanager
def no_collection() -> Iterator[None]:
    """Memory is freed by reference counts alone."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def payloads(log: TopicLog) -> list[bytes]:
    found: list[bytes] = []
    position = Position(-1, -1)
    while entries := load_now(log, position, 99, 10_000):
        found += [entry.payload for entry in entries]
        position = log.next_position(entries[-1].position)
    return found


def test_a_log_at_rest_is_no_object_and_whole_when_it_is_opened() -> None:
    storage, stepper = opened(SimulatedDisk())
    fill(storage, stepper)
    checkpoint(storage, stepper)
    alive = weakref.ref(storage.open_log("t7"))
    with no_collection():
        unloaded = storage.unload(storage.used_names())
        assert len(unloaded) == LOGS
        assert storage.used_names() == []
        assert all(free() for free in unloaded)
        unloaded.clear()
        assert alive() is None
    assert sorted(storage.log_names()) == sorted(f"t{number}" for number in range(LOGS))
    log = storage.open_log("t7")
    assert payloads(log) == [b"7"]
    assert log.cursors["sub"].backlog_entries == 1
    assert storage.used_names() == ["t7"]
    storage.abandon()


def test_a_start_makes_objects_of_those_only_that_the_journal_tells_of() -> None:
    disk = SimulatedDisk()
    storage, stepper = opened(disk)
    fill(storage, stepper)
    checkpoint(storage, stepper)
    storage.unload(["t1", "t2"])
    cursor = storage.open_log("t3").cursors["sub"]
    cursor.acknowledge([(storage.open_log("t3").last_confirmed, None)])
    storage.open_log("t2").append(b"more", 1, 1, lambda *_: None)
    storage.delete_log_with("t4", lambda _: None)
    stepper.run()
    storage.abandon()
    storage, stepper = opened(disk)
    assert sorted(storage.used_names()) == ["t2", "t3"]
    assert not storage.has_log("t4")
    assert payloads(storage.open_log("t2")) == [b"2", b"more"]
    assert storage.open_log("t3").cursors["sub"].backlog_entries == 0
    assert len(storage.log_names()) == LOGS - 1
    storage.abandon()


def test_what_is_not_on_the_disk_yet_stays_in_memory() -> None:
    storage, stepper = opened(SimulatedDisk())
    log = storage.open_log("t")
    log.append(b"x", 1, 1, lambda *_: None)
    assert storage.unload(["t"]) == []
    stepper.run()
    log.close_ledger()
    storage.take_touched()
    assert storage.unload(["t"]) == [], "in the journal only"
    checkpoint(storage, stepper)
    assert len(storage.unload(["t", "unknown"])) == 1
    storage.abandon()


def test_who_still_has_the_object_of_a_log_at_rest_changes_that_log() -> None:
    disk = SimulatedDisk()
    storage, stepper = opened(disk)
    fill(storage, stepper)
    checkpoint(storage, stepper)
    held = storage.open_log("t5")
    storage.unload(storage.used_names())
    held.append(b"more", 1, 1, lambda *_: None)
    assert storage.used_names() == ["t5"]
    assert storage.open_log("t5") is held
    checkpoint(storage, stepper)
    held.close_ledger()
    checkpoint(storage, stepper)
    storage.unload(["t5"])
    assert storage.open_log("t5") is held, "never two objects of one log"
    checkpoint(storage, stepper)
    storage.abandon()
    storage, stepper = opened(disk)
    assert payloads(storage.open_log("t5")) == [b"5", b"more"]
    assert len(storage.log_names()) == LOGS
    storage.abandon()


def test_a_log_in_use_is_not_freed() -> None:
    storage, stepper = opened(SimulatedDisk())
    fill(storage, stepper)
    checkpoint(storage, stepper)
    held = storage.open_log("t1")
    cursor = storage.open_log("t2").cursors["sub"]
    append = storage.open_log("t3").append
    first = storage.unload(["t1", "t2", "t3", "t4"])
    assert [free() for free in first] == [False, False, False, True]
    assert payloads(held) == [b"1"]
    assert cursor.backlog_entries == 1
    append(b"more", 1, 1, lambda *_: None)
    stepper.run()
    assert payloads(storage.open_log("t3")) == [b"3", b"more"]
    assert storage.open_log("t1") is held
    assert first[0](), "it is loaded again, so that there is nothing to free"
    assert payloads(held) == [b"1"]
    del cursor
    assert first[1]()
    assert payloads(storage.open_log("t2")) == [b"2"]
    storage.abandon()
