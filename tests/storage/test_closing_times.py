"""Retention counts from the time at which the broker closed a ledger, whatever producers say and whoever restarts."""

from __future__ import annotations

import json
import random

import pytest
from magnetar.broker.storage import EARLIEST, Storage, StorageConfig, TopicLog
from magnetar.testing.simulated_disk import SimulatedDisk

from tests.support.stepper import Stepper, step_by_hand

HOUR_MS = 3600 * 1000
WEEK_MS = 7 * 24 * HOUR_MS
CONFIG = StorageConfig(journal_file_bytes=65536, max_ledger_entries=3, max_ledger_age_s=4 * 3600)
ANCIENT_MS, DISTANT_MS = 1, 2**62


class Machine:
    """A storage on a simulated disk, with a clock that stands still until it is set."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.now_ms = 1000 * WEEK_MS
        self.start()

    def start(self) -> None:
        self.storage = Storage.open("/d", CONFIG, self.disk, lambda: self.now_ms / 1000, random.Random(1))
        self.stepper: Stepper = step_by_hand(self.storage, random.Random(1))

    def crash(self) -> None:
        self.stepper.run()
        self.storage.abandon()
        self.start()

    def stop(self) -> None:
        self.storage._core.close()
        self.storage._checkpoint.begin()
        self.crash()

    @property
    def log(self) -> TopicLog:
        return self.storage.open_log("t")

    def append(self, count: int, publish_time_ms: int = ANCIENT_MS) -> None:
        for _ in range(count):
            self.log.append(b"x", 1, publish_time_ms, lambda *_: None)
        self.stepper.run()

    def trim(self, retention_ms: int = WEEK_MS) -> list[int]:
        dropped = self.log.trim_with(retention_ms, -1, lambda _: None)
        self.stepper.run()
        return dropped


@pytest.mark.parametrize("publish_time_ms", [ANCIENT_MS, DISTANT_MS, 0])
def test_publish_times_do_not_count(publish_time_ms: int) -> None:
    machine = Machine()
    machine.append(7, publish_time_ms)
    machine.now_ms += WEEK_MS - 1
    assert machine.trim() == []
    machine.now_ms += 1
    assert machine.trim() == [1, 2]


def test_ledger_that_was_filled_slowly_counts_from_its_end() -> None:
    machine = Machine()
    machine.append(2)
    machine.now_ms += 3 * HOUR_MS
    machine.append(2)
    machine.now_ms += WEEK_MS - 1
    assert machine.trim() == []
    machine.now_ms += 1
    assert machine.trim() == [1]


@pytest.mark.parametrize("how", ["crash", "stop", "checkpoint and crash"])
def test_closing_times_survive_a_restart(how: str) -> None:
    machine = Machine()
    machine.append(3)  # closed now
    machine.now_ms += HOUR_MS
    machine.append(1)  # begun now, closed by the restart
    if how == "checkpoint and crash":
        machine.storage._checkpoint.begin()
    (machine.stop if how == "stop" else machine.crash)()
    restarted_ms = machine.now_ms
    for _ in range(3):
        machine.now_ms += HOUR_MS
        machine.stop()
    machine.now_ms = restarted_ms + WEEK_MS - HOUR_MS - 1
    assert machine.trim() == []
    machine.now_ms = restarted_ms + WEEK_MS - 1
    assert machine.trim() in ([1], [])  # without a checkpoint the first ledger counts from when the second was begun
    machine.now_ms = restarted_ms + WEEK_MS
    machine.trim()
    assert [ledger.id for ledger in machine.log.ledgers()] == []


def test_ledgers_of_an_older_catalogue_count_from_their_creation() -> None:
    machine = Machine()
    machine.append(7)
    line = json.loads(machine.log.snapshot().encode())
    old = line | {"ledgers": [ledger[:7] for ledger in line["ledgers"]], "name": "u", "log": 99}
    log = TopicLog.from_line(machine.storage._core, json.dumps(old).encode())
    log.open_cursor("sub", EARLIEST)
    assert [ledger.closed_ms for ledger in log.ledgers_by_id.values()] == [machine.now_ms] * 3
    assert log.entry_count == 7


def test_next_trim_is_when_the_oldest_ledger_is_old_enough() -> None:
    machine = Machine()
    assert machine.log.next_trim_ms(WEEK_MS) is None
    machine.append(2)
    assert machine.log.next_trim_ms(WEEK_MS) is None, "the open ledger never goes"
    machine.append(2)
    assert machine.log.next_trim_ms(WEEK_MS) == machine.now_ms + WEEK_MS
    assert machine.log.next_trim_ms(-1) is None
    cursor = machine.log.open_cursor("sub", EARLIEST)
    assert machine.log.next_trim_ms(WEEK_MS) is None, "a cursor holds it back; that it moves is a change"
    cursor.acknowledge_up_to(machine.log.last_confirmed)
    assert machine.log.next_trim_ms(0) == machine.now_ms
    machine.log.is_compacting = True
    assert machine.log.next_trim_ms(WEEK_MS) == machine.now_ms, "looked at again"
