"""Cursors against a naive model: a set of positions and a dictionary of ack sets."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.broker.storage import Cursor, MemoryCursor, Position, Storage, StorageConfig, TopicLog, bitmap
from magnetar.broker.storage.simulated_disk import SimulatedDisk
from magnetar.wire.ack_set import intersect, is_empty

LEDGER_SIZES = (7, 1, 20, 12)


def a_log() -> tuple[Storage, TopicLog, list[Position]]:
    """A log with ledgers of these sizes, the last one open."""
    storage = Storage.open("/d", StorageConfig(journal_file_bytes=8192), SimulatedDisk(), lambda: 1.0, random.Random(1))
    stepper = storage.step_by_hand(random.Random(1))
    log = storage.open_log("t")
    positions: list[Position] = []
    for size in LEDGER_SIZES:
        log.close_ledger()
        for _ in range(size):
            log.append(b"x", 1, 1, lambda position, _: positions.append(position))
    stepper.run()
    return storage, log, positions


indexes = st.integers(0, sum(LEDGER_SIZES) - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ack"), st.lists(indexes, max_size=12)),
        st.tuples(st.just("up to"), indexes),
        st.tuples(st.just("part"), st.lists(st.tuples(indexes, st.integers(0, 7)), max_size=4)),
        st.tuples(st.just("reset"), indexes),
        st.tuples(st.just("store"), st.none()),
    ),
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(steps)
def test_cursor_agrees_with_a_set_of_positions(steps: list[tuple[str, Any]]) -> None:
    _, log, positions = a_log()
    cursor: MemoryCursor = log.open_cursor("sub", Position(-1, -1))
    acked: set[Position] = set()
    partly: dict[Position, tuple[int, ...]] = {}
    for what, value in steps:
        if what == "ack":
            chosen = [positions[index] for index in value]
            cursor.acknowledge([(position, None) for position in chosen])
            acked.update(chosen)
        elif what == "up to":
            cursor.acknowledge_up_to(positions[value])
            acked.update(positions[: value + 1])
        elif what == "part":
            for index, words in value:
                position = positions[index]
                cursor.acknowledge([(position, (words,) if words else ())])
                if position not in acked:
                    partly[position] = intersect(partly.get(position, (7,)), (words,))
                    if is_empty(partly[position]):
                        acked.add(position)
        elif what == "reset":
            cursor.apply_reset(log.before(positions[value]))
            acked = set(positions[:value])
            partly.clear()
        else:
            assert isinstance(cursor, Cursor)
            cursor = Cursor.from_snapshot(log, json.loads(cursor.snapshot().encode()))
        partly = {position: words for position, words in partly.items() if position not in acked}
        check(cursor, log, positions, acked, partly)


def check(
    cursor: MemoryCursor,
    log: TopicLog,
    positions: list[Position],
    acked: set[Position],
    partly: dict[Position, tuple[int, ...]],
) -> None:
    assert {position for position in positions if cursor.is_acknowledged(position)} == acked
    assert {p: words for p in positions if (words := cursor.remaining(p)) is not None} == partly
    assert cursor.backlog_entries == len(positions) - len(acked)
    wanted = [position for position in positions if position not in acked]
    end = log.next_position(positions[-1])
    assert cursor.next_unacknowledged(Position(-1, -1)) == (wanted[0] if wanted else end)
    for position in positions[::5]:
        later = [other for other in wanted if other > position]
        assert cursor.next_unacknowledged(position) == (later[0] if later else end)
    before = positions[: positions.index(wanted[0])] if wanted else positions
    assert cursor.mark_delete == (before[-1] if before else cursor.mark_delete)
    assert not before or cursor.mark_delete == before[-1]
    in_ranges = {
        Position(first.ledger_id, entry_id)
        for first, last in cursor.acknowledged_ranges()
        for entry_id in range(first.entry_id, last.entry_id + 1)
    }
    assert in_ranges == {position for position in acked if position > cursor.mark_delete}


def test_acknowledging_what_the_log_does_not_hold_changes_nothing() -> None:
    _, log, positions = a_log()
    cursor = log.open_cursor("sub", Position(-1, -1))
    told: list[Exception | None] = []
    strange = [Position(1, 7), Position(1, 10**12), Position(99, 0), Position(-1, -1), Position(4, -1)]
    cursor.acknowledge([(position, None) for position in strange], told.append)
    cursor.acknowledge([(position, (1,)) for position in strange])
    assert cursor.backlog_entries == len(positions)
    assert cursor.acknowledged_ranges() == []
    cursor.acknowledge_up_to(Position(10**9, 0))
    assert cursor.backlog_entries == len(positions)


def test_memory_cursor_tells_at_once_and_leaves_nothing_behind() -> None:
    storage, log, positions = a_log()
    groups = storage.statistics().groups
    cursor = MemoryCursor(log, "reader", Position(-1, -1))
    told: list[Exception | None] = []
    cursor.acknowledge([(positions[0], None)], told.append)
    assert told == [None]
    assert cursor.mark_delete == positions[0]
    assert storage.statistics().groups == groups
    assert log.cursors == {}


@given(st.binary(max_size=6), st.integers(0, 60))
def test_bit_searches_agree_with_looking_at_each_bit(data: bytes, start: int) -> None:
    bits = bytearray(data)

    def bit(index: int) -> int:
        return bits[index >> 3] >> (index & 7) & 1 if index >> 3 < len(bits) else 0

    zero = start
    while bit(zero):
        zero += 1
    assert bitmap.first_zero(bits, start) == zero
    ones = [index for index in range(start, 8 * len(bits)) if bit(index)]
    assert bitmap.first_one(bits, start) == (ones[0] if ones else None)
