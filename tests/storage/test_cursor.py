"""Cursors against a naive model: a set of positions and a dictionary of ack sets."""

from __future__ import annotations

import base64
import json
import random
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.broker.storage import Cursor, MemoryCursor, Position, Storage, StorageConfig, TopicLog
from magnetar.broker.storage.cursors import bitmap
from magnetar.broker.storage.cursors import image as cursor_image
from magnetar.testing.simulated_disk import SimulatedDisk
from magnetar.wire.ack_set import intersect

from tests.support.stepper import step_by_hand

LEDGER_SIZES = (7, 1, 20, 12)


def a_log() -> tuple[Storage, TopicLog, list[Position]]:
    """A log with ledgers of these sizes, the last one open."""
    storage = Storage.open("/d", StorageConfig(journal_file_bytes=8192), SimulatedDisk(), lambda: 1.0, random.Random(1))
    stepper = step_by_hand(storage, random.Random(1))
    log = storage.open_log("t")
    positions: list[Position] = []
    for size in LEDGER_SIZES:
        log.close_ledger()
        for _ in range(size):
            log.append(b"x", 1, 1, lambda position, _: positions.append(position))
    stepper.run()
    return storage, log, positions


NEVER = [
    Position(ledger, entry)
    for ledger in (-1, 0, 1, 2, 4, 5, 99, 2**63 - 1, 2**64 - 1)
    for entry in (-(2**63), -2, 20, 10**12, 2**63 - 1, 2**64 - 1)
]
"""The ledgers are 1 to 4, the longest of 20 entries."""

indexes = st.integers(0, sum(LEDGER_SIZES) - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ack"), st.lists(indexes, max_size=12)),
        st.tuples(st.just("up to"), indexes),
        st.tuples(st.just("part"), st.lists(st.tuples(indexes, st.integers(0, 7)), max_size=4)),
        st.tuples(st.just("up to part"), st.tuples(indexes, st.integers(0, 7))),
        st.tuples(st.just("reset"), indexes),
        st.tuples(st.just("store"), st.none()),
        st.tuples(st.just("never"), st.lists(st.sampled_from(NEVER), min_size=1, max_size=4)),
        st.tuples(st.just("up to never"), st.sampled_from(NEVER)),
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
                    if not any(partly[position]):
                        acked.add(position)
        elif what == "up to part":
            index, word = value
            cursor.acknowledge_up_to(positions[index], (word,))
            if word:
                acked.update(positions[:index])
                if positions[index] not in acked:
                    left = intersect(partly.get(positions[index], (7,)), (word,))
                    partly[positions[index]] = left
                    acked.update([] if any(left) else [positions[index]])
            else:
                acked.update(positions[: index + 1])
        elif what == "never":
            cursor.acknowledge([(position, None) for position in value])
            cursor.acknowledge([(position, (1,)) for position in value])
        elif what == "up to never":
            cursor.acknowledge_up_to(value)
            cursor.acknowledge_up_to(value, (1,))
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
    assert cursor.acknowledged_range_count == len(cursor.acknowledged_ranges())


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
    groups = storage._core.journal.groups
    cursor = MemoryCursor(log, "reader", Position(-1, -1))
    told: list[Exception | None] = []
    cursor.acknowledge([(positions[0], None)], told.append)
    assert told == [None]
    assert cursor.mark_delete == positions[0]
    assert storage._core.journal.groups == groups
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


@settings(max_examples=60)
@given(steps, st.integers(1, 3), st.integers(0, 25))
def test_memory_cursor_forgets_ledgers_that_are_dropped_under_it(
    steps: list[tuple[str, Any]], dropped: int, at: int
) -> None:
    _, log, positions = a_log()
    cursor = MemoryCursor(log, "reader", Position(-1, -1))
    gone = [ledger.id for ledger in log.ledgers()][:dropped]
    held = [position for position in positions if position.ledger_id not in gone]
    acked: set[Position] = set()
    for number, (what, value) in enumerate(steps):
        if number == at:
            log.drop_ledgers(gone)
        if what == "ack":
            cursor.acknowledge([(positions[index], None) for index in value])
            acked.update(positions[index] for index in value)
        elif what == "up to":
            cursor.acknowledge_up_to(positions[value])
            acked.update(positions[: value + 1])
    if at >= len(steps):
        log.drop_ledgers(gone)
    left = [position for position in held if position not in acked]
    assert cursor.backlog_entries == len(left)
    assert [position for position in held if not cursor.is_acknowledged(position)] == left
    assert cursor.next_unacknowledged(cursor.mark_delete) == (left[0] if left else log.next_position(positions[-1]))


def test_memory_and_disk_agree_after_acknowledgements_of_anything() -> None:
    rng = random.Random(7)
    for _ in range(20):
        disk = SimulatedDisk()
        storage = Storage.open("/d", StorageConfig(journal_file_bytes=65536), disk, lambda: 1.0, random.Random(1))
        stepper = step_by_hand(storage, random.Random(1))
        log = storage.open_log("t")
        for size in LEDGER_SIZES:
            log.close_ledger()
            for _ in range(size):
                log.append(b"x", 3, 1, lambda *_: None)
        cursor = log.open_cursor("sub", Position(-1, -1))
        stepper.run()
        places = [*NEVER, *(Position(ledger, entry) for ledger in range(1, 5) for entry in range(-1, 20))]
        for _ in range(12):
            some = rng.sample(places, 5)  # one command may name a place again, and say something else of it
            acks = [(rng.choice(some), rng.choice([None, (5,), (2**64 - 1,) * 9, (-1,), (0, 0, 1)])) for _ in range(9)]
            if rng.random() < 0.3:
                cursor.acknowledge_up_to(*acks[0], lambda _: None)
            else:
                cursor.acknowledge(acks, lambda _: None)
            if rng.random() < 0.2:
                cursor.reset_with(rng.choice(places), lambda _: None)
        stepper.run()
        before = cursor.snapshot().encode()
        storage.abandon()
        again = Storage.open("/d", StorageConfig(journal_file_bytes=65536), disk, lambda: 1.0, random.Random(2))
        assert json.loads(again.open_log("t").cursors["sub"].snapshot().encode()) == json.loads(before)
        again.abandon()


def test_snapshot_copies_only_the_ledgers_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    packed: list[int] = []
    encode_ledger = cursor_image.encode_ledger

    def noted(ledger_id: int, state: Any) -> bytes:
        made.append(ledger_id)
        return encode_ledger(ledger_id, state)

    compress = zlib.compress

    def counted(data: bytes, level: int) -> bytes:
        packed.append(len(data))
        return compress(data, level)

    monkeypatch.setattr("magnetar.broker.storage.cursors.cursor.encode_ledger", noted)
    monkeypatch.setattr("magnetar.broker.storage.cursors.image.zlib.compress", counted)
    _, log, positions = a_log()
    cursor = log.open_cursor("sub", Position(-1, -1))
    cursor.acknowledge([(position, None) for position in positions[1::2]])
    cursor.acknowledge([(position, (1,)) for position in positions[2::4]])
    cursor.snapshot()
    assert packed == [], "the loop lane encodes nothing"
    cursor.snapshot().encode()
    assert sorted(made) == [1, 1, 2, 3, 3, 4, 4]
    made.clear()
    packed.clear()
    cursor.snapshot().encode()
    assert (made, packed) == ([], [])
    cursor.acknowledge([(positions[-4], None)])
    cursor.snapshot().encode()
    assert (made, len(packed)) == ([4], 1)
    restored = Cursor.from_snapshot(log, json.loads(cursor.snapshot().encode()))
    assert restored.acknowledged_ranges() == cursor.acknowledged_ranges()
    assert [restored.remaining(p) for p in positions] == [cursor.remaining(p) for p in positions]


def test_cursor_of_an_older_catalogue_is_read() -> None:
    _, log, positions = a_log()
    state = {
        "id": 9, "name": "sub", "mark": [1, 2], "properties": {"k": "v"},
        "acked": {"3": base64.b64encode(zlib.compress(b"\x0e", 1)).decode()}, "partly": [[1, 4, [5]], [4, 0, [-1, 3]]],
    }  # fmt: skip
    cursor = Cursor.from_snapshot(log, state)
    assert cursor.acknowledged_ranges() == [(Position(3, 1), Position(3, 3))]
    assert cursor.backlog_entries == len(positions) - 3 - 3
    assert (cursor.remaining(Position(1, 4)), cursor.remaining(Position(4, 0))) == ((5,), (-1, 3))
    assert json.loads(cursor.snapshot().encode())["properties"] == {"k": "v"}


parts = st.dictionaries(
    st.integers(0, 2**40), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4).map(tuple), max_size=8
)


@given(parts)
def test_parts_survive_packing(parts: dict[int, tuple[int, ...]]) -> None:
    state = json.loads(b'{"acked":{},"parts":{' + cursor_image.encode_ledger(3, parts) + b"}}")
    assert dict(cursor_image.parts_in(state)) == {3: parts}


def test_cumulative_acknowledgements_cost_what_they_pass_not_what_lies_ahead() -> None:
    """Each one used to look at every hole of every ledger."""
    storage = Storage.open("/d", StorageConfig(max_ledger_entries=500), SimulatedDisk(), lambda: 1.0, random.Random(1))
    stepper = step_by_hand(storage, random.Random(1))
    log = storage.open_log("t")
    positions: list[Position] = []
    for _ in range(5000):
        log.append(b"x", 1, 1, lambda position, _: positions.append(position))
    stepper.run()
    cursor = MemoryCursor(log, "sub", Position(-1, -1))
    cursor.acknowledge([(position, None) for position in positions[1::2]])
    looked_at = 0
    count = bitmap.count

    def counted(bits: bytearray, start: int, end: int | None = None) -> int:
        nonlocal looked_at
        looked_at += (len(bits) * 8 if end is None else end) - start
        return count(bits, start, end)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bitmap, "count", counted)
        for position in positions[::2]:
            cursor.acknowledge_up_to(position)
    assert cursor.backlog_entries == 0
    assert looked_at < 3 * len(positions)
