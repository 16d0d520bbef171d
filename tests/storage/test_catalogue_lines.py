"""A checkpoint costs the loop what changed, not what there is."""

from __future__ import annotations

import json
import random

import pytest
from magnetar.broker.storage import EARLIEST, Storage, StorageConfig, TopicLog
from magnetar.testing.simulated_disk import SimulatedDisk

from tests.support.stepper import Stepper, load_now, step_by_hand

LOGS = 30


def opened(disk: SimulatedDisk) -> tuple[Storage, Stepper]:
    storage = Storage.open("/d", StorageConfig(journal_file_bytes=65536), disk, lambda: 1.0, random.Random(1))
    return storage, step_by_hand(storage, random.Random(1))


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    snapshot = TopicLog.snapshot

    def noted(self: TopicLog) -> object:
        names.append(self.name)
        return snapshot(self)

    monkeypatch.setattr(TopicLog, "snapshot", noted)
    return names


def checkpoint(storage: Storage, stepper: Stepper) -> None:
    told: list[Exception | None] = []
    storage._checkpoint.begin(told.append)
    stepper.run()
    assert told == [None]


def test_checkpoint_captures_the_logs_that_changed_and_writes_all(captured: list[str]) -> None:
    disk = SimulatedDisk()
    storage, stepper = opened(disk)
    for number in range(LOGS):
        log = storage.open_log(f"t{number}")
        log.append(b"x", 1, 1, lambda *_: None)
        log.open_cursor("sub", EARLIEST)
    checkpoint(storage, stepper)
    assert len(captured) == LOGS
    captured.clear()
    storage.open_log("t3").append(b"y", 1, 1, lambda *_: None)
    storage.open_log("t4").cursors["sub"].acknowledge([(storage.open_log("t4").last_confirmed, None)])
    storage.delete_log_with("t5", lambda _: None)
    checkpoint(storage, stepper)
    assert sorted(captured) == ["t3", "t4"]
    storage.abandon()
    captured.clear()
    storage, stepper = opened(disk)
    assert sorted(storage.log_names()) == sorted(f"t{number}" for number in range(LOGS) if number != 5)
    assert storage.open_log("t3").entry_count == 2
    assert storage.open_log("t4").cursors["sub"].backlog_entries == 0
    checkpoint(storage, stepper)
    first = len(captured)
    checkpoint(storage, stepper)
    assert len(captured) == first, "after a start, too"
    storage.abandon()


def test_a_start_leaves_alone_what_the_catalogue_says_already(captured: list[str]) -> None:
    disk = SimulatedDisk()
    storage, stepper = opened(disk)
    for number in range(LOGS):
        storage.open_log(f"t{number}").append(b"x", 1, 1, lambda *_: None)
    stepper.run()
    storage._core.close()
    checkpoint(storage, stepper)
    storage.abandon()
    storage, stepper = opened(disk)
    captured.clear()
    storage.open_log("t1").append(b"y", 1, 1, lambda *_: None)
    checkpoint(storage, stepper)
    assert captured == ["t1"]
    storage.abandon()
    storage, _ = opened(disk)
    assert [storage.open_log(f"t{number}").entry_count for number in range(3)] == [1, 2, 1]
    storage.abandon()


def test_a_change_is_told_to_catalogue_and_broker_whoever_looked_first() -> None:
    storage, stepper = opened(SimulatedDisk())
    log = storage.open_log("t")
    for look_first, look_second in (("broker", "catalogue"), ("catalogue", "broker")):
        for look in (look_first, look_second):
            log.append(b"x", 1, 1, lambda *_: None)
            if look == "broker":
                assert storage.take_touched() == [log]
            else:
                assert log in storage._core.lines.changed
                checkpoint(storage, stepper)
    log.append(b"x", 1, 1, lambda *_: None)
    checkpoint(storage, stepper)
    assert storage.take_touched() == [log]
    assert storage.take_touched() == []
    storage.abandon()


def test_a_log_that_is_made_anew_under_its_name_has_one_line() -> None:
    disk = SimulatedDisk()
    storage, stepper = opened(disk)
    for _ in range(3):
        storage.open_log("t").append(b"x", 1, 1, lambda *_: None)
        checkpoint(storage, stepper)
        storage.delete_log_with("t", lambda _: None)
    storage.open_log("t").append(b"last", 1, 1, lambda *_: None)
    checkpoint(storage, stepper)
    lines = storage._core.lines.capture(0)
    assert [json.loads(line.encode())["name"] for line in lines] == ["t"]
    storage.abandon()
    storage, _ = opened(disk)
    assert [entry.payload for entry in load_now(storage.open_log("t"), EARLIEST, 9, 99)] == [b"last"]
    storage.abandon()


def test_a_ledger_that_is_gone_is_not_kept_until_it_would_be_too_old() -> None:
    storage, stepper = opened(SimulatedDisk())
    storage.open_log("old").append(b"x", 1, 1, lambda *_: None)
    for number in range(5):
        storage.open_log(f"t{number}").append(b"x", 1, 1, lambda *_: None)
        checkpoint(storage, stepper)
        storage.delete_log_with(f"t{number}", lambda _: None)
    checkpoint(storage, stepper)
    assert [ledger.log.name for ledger in storage._core.lines.open_ledgers.values()] == ["old"]
    storage.abandon()
