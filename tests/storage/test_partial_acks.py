"""Ack sets of all cursors together are bounded; what is refused changes nothing and says why."""

from __future__ import annotations

import gc
import random

import pytest
from magnetar.broker.storage import Cursor, MemoryCursor, Position, Storage, StorageConfig, TopicLog
from magnetar.broker.storage.cursors import partial_acks
from magnetar.broker.storage.cursors.partial_acks import size_of
from magnetar.errors import NotAllowed
from magnetar.testing.simulated_disk import SimulatedDisk

from tests.support.stepper import Stepper, step_by_hand

MESSAGES = 640
WORDS = MESSAGES // 64
SETS = 4
FIRST_LEFT = (-2,) + (-1,) * (WORDS - 1)
SECOND_LEFT = (-4,) + (-1,) * (WORDS - 1)


def a_log(disk: SimulatedDisk, limit_bytes: int = SETS * size_of(WORDS) - 1) -> tuple[Storage, Stepper, TopicLog]:
    config = StorageConfig(journal_file_bytes=1 << 16, partial_ack_bytes=limit_bytes)
    storage = Storage.open("/d", config, disk, lambda: 1.0, random.Random(1))
    stepper = step_by_hand(storage, random.Random(1))
    return storage, stepper, storage.open_log("t")


def filled(log: TopicLog, stepper: Stepper, entries: int = 2 * SETS) -> list[Position]:
    positions: list[Position] = []
    for _ in range(entries):
        log.append(b"x" * 5000, MESSAGES, 1, lambda position, _: positions.append(position))
    stepper.run()
    return positions


def told(cursor: MemoryCursor, stepper: Stepper, position: Position, words: tuple[int, ...] | None) -> Exception | None:
    answers: list[Exception | None] = []
    cursor.acknowledge([(position, words)], answers.append)
    stepper.run()
    (answer,) = answers
    return answer


@pytest.mark.parametrize("is_durable", [True, False])
def test_further_ack_sets_are_refused_at_the_limit(is_durable: bool) -> None:
    _, stepper, log = a_log(SimulatedDisk())
    positions = filled(log, stepper)
    start = Position(-1, -1)
    cursor: MemoryCursor = log.open_cursor("s", start) if is_durable else MemoryCursor(log, "s", start)
    for position in positions[1 : SETS + 1]:
        assert told(cursor, stepper, position, FIRST_LEFT) is None
    refusal = told(cursor, stepper, positions[-1], FIRST_LEFT)
    assert isinstance(refusal, NotAllowed)
    assert "acknowledge whole batches" in str(refusal)
    assert cursor.remaining(positions[-1]) is None
    # An entry that has a set may lose further messages, whole entries are acknowledged, and that makes room.
    assert told(cursor, stepper, positions[1], SECOND_LEFT) is None
    assert cursor.remaining(positions[1]) == SECOND_LEFT
    assert told(cursor, stepper, positions[1], None) is None
    assert told(cursor, stepper, positions[-1], FIRST_LEFT) is None
    # Cumulatively, everything before the entry is acknowledged, and nothing of it.
    cursor.acknowledge_up_to(positions[0])
    answers: list[Exception | None] = []
    other = MemoryCursor(log, "other", start)
    other.acknowledge_up_to(positions[1], FIRST_LEFT, answers.append)
    stepper.run()
    assert isinstance(answers[0], NotAllowed)
    assert other.mark_delete == positions[0]
    assert other.remaining(positions[1]) is None


def test_the_count_follows_every_way_in_which_sets_end() -> None:
    _, stepper, log = a_log(SimulatedDisk(), 1 << 30)
    positions = filled(log, stepper)
    counted = log.core.partial_acks

    def with_sets() -> Cursor:
        cursor = log.open_cursor("s", Position(-1, -1))
        cursor.apply_reset(Position(-1, -1))
        cursor.acknowledge([(position, FIRST_LEFT) for position in positions])
        assert counted._bytes == cursor.partial_bytes == len(positions) * size_of(WORDS)
        return cursor

    with_sets().acknowledge([(position, None) for position in positions])
    assert counted._bytes == 0
    with_sets().acknowledge_up_to(positions[2])
    assert counted._bytes == (len(positions) - 3) * size_of(WORDS)
    with_sets().acknowledge_up_to(positions[-1])
    assert counted._bytes == 0
    with_sets().apply_reset(Position(-1, -1))
    assert counted._bytes == 0
    with_sets().forget_ledger(positions[0].ledger_id)
    assert counted._bytes == 0


def test_cursors_that_are_gone_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_acks, "RECOUNT_S", 0.0)
    _, stepper, log = a_log(SimulatedDisk())
    positions = filled(log, stepper)
    gone = MemoryCursor(log, "gone", Position(-1, -1))
    for position in positions[:SETS]:
        assert told(gone, stepper, position, FIRST_LEFT) is None
    other = MemoryCursor(log, "other", Position(-1, -1))
    assert isinstance(told(other, stepper, positions[0], FIRST_LEFT), NotAllowed)
    del gone
    gc.collect()
    assert told(other, stepper, positions[0], FIRST_LEFT) is None


def test_stored_sets_above_the_limit_survive_a_restart() -> None:
    disk = SimulatedDisk()
    storage, stepper, log = a_log(disk, 1 << 30)
    positions = filled(log, stepper)
    log.open_cursor("s", Position(-1, -1)).acknowledge([(position, FIRST_LEFT) for position in positions])
    stepper.run()
    for _ in range(2):  # once from the journal, once from the catalogue
        storage.abandon()
        storage, stepper, log = a_log(disk, 1)
        cursor = log.open_cursor("s", Position(-1, -1))
        assert [cursor.remaining(position) for position in positions] == [FIRST_LEFT] * len(positions)
        assert log.core.partial_acks.is_full
        log.core.checkpoint_due()
        stepper.run()
