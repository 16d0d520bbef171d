"""The index of delayed entries, against a dictionary and a clock of the test's own."""

from __future__ import annotations

import random
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from magnetar.broker.dispatch import delay_index
from magnetar.broker.dispatch.delay_index import DelayIndex
from magnetar.wire.position import Position

positions = st.builds(Position, st.integers(1, 3), st.integers(0, 40))
TIMES = [*range(100), -(1 << 63), (1 << 63) - 1]


class Model(RuleBasedStateMachine):
    """Runs of four entries, so that a short test makes many of them, and sweeps."""

    def __init__(self) -> None:
        super().__init__()
        self._run = delay_index.RUN
        delay_index.RUN = 4
        self.index = DelayIndex()
        self.waiting: dict[Position, int] = {}
        self.now_ms = 0

    def teardown(self) -> None:
        delay_index.RUN = self._run

    @rule(position=positions)
    def add(self, position: Position) -> None:
        time_ms = TIMES[crc32(b"%d:%d" % position) % len(TIMES)]  # a message has one time, whenever it is found
        if position not in self.waiting:
            self.waiting[position] = time_ms
        self.index.add(position, time_ms)

    @rule(passed_ms=st.integers(0, 30), limit=st.integers(1, 10))
    def take(self, passed_ms: int, limit: int) -> None:
        self.now_ms += passed_ms
        due = sorted((time_ms, position) for position, time_ms in self.waiting.items() if time_ms <= self.now_ms)
        taken = self.index.take(self.now_ms, limit)
        for position in taken:
            assert self.waiting.pop(position) <= self.now_ms
        assert len(taken) == min(limit, len(due))

    @rule(position=positions)
    def forget(self, position: Position) -> None:
        self.waiting.pop(position, None)
        self.index.forget(position)

    @rule(position=positions)
    def forget_up_to(self, position: Position) -> None:
        self.waiting = {waiting: time_ms for waiting, time_ms in self.waiting.items() if waiting > position}
        self.index.forget_up_to(position)

    @rule()
    def clear(self) -> None:
        self.waiting.clear()
        self.index.clear()

    @invariant()
    def holds_what_waits(self) -> None:
        assert len(self.index) == len(self.waiting)
        assert all(position in self.index for position in self.waiting)
        if not self.waiting:
            assert self.index.first_ms() is None
        if not self.index._unswept:
            most = 2 * len(self.index) + 2 * delay_index.RUN + len(self.index._runs) + 1
            assert self.index._records <= most


TestModel = Model.TestCase


@given(st.lists(st.tuples(positions, st.integers(0, 100)), unique_by=lambda pair: pair[0]), st.integers(1, 7))
def test_what_is_due_is_given_out_by_time_and_position(entries: list[tuple[Position, int]], limit: int) -> None:
    index = DelayIndex()
    for position, time_ms in entries:
        index.add(position, time_ms)
    taken: list[tuple[int, Position]] = []
    by_position = dict(entries)
    for now_ms in range(101):
        while some := index.take(now_ms, limit):
            assert all(by_position[position] == now_ms for position in some)
            taken += [(now_ms, position) for position in some]
    assert taken == sorted((time_ms, position) for position, time_ms in entries)
    assert index.size_bytes == 0


def test_an_entry_takes_16_bytes_and_a_bit() -> None:
    index, rng = DelayIndex(), random.Random(3)
    for number in range(20_000):
        index.add(Position(7, number), rng.randrange(10**12))
    assert index.size_bytes == 20_000 * 16 + 20_000 // 8
    index.forget_up_to(Position(7, 17_999))
    assert len(index) == 2000
    while index._unswept:
        assert not index.take(0, 1)
    assert index.size_bytes < 12_500 * 16 + 20_000 // 8  # those that are gone are swept


def test_a_sweep_looks_at_one_run_with_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    index, rng, runs = DelayIndex(), random.Random(4), 50
    for number in range(runs * delay_index.RUN):
        index.add(Position(7, number), rng.randrange(1, 10**12))
    looked_at: list[int] = []
    position = delay_index._position

    def counted(place: int) -> Position:
        looked_at.append(place)
        return position(place)

    monkeypatch.setattr(delay_index, "_position", counted)
    index.forget_up_to(Position(7, (runs - 1) * delay_index.RUN))
    assert len(looked_at) <= delay_index.RUN
    steps = 0
    while index._unswept:
        looked_at.clear()
        if steps % 2:
            index.forget(Position(7, runs * delay_index.RUN - 1 - steps))
        else:
            index.take(0, 1)
        assert len(looked_at) <= 2 * delay_index.RUN
        steps += 1
    assert steps >= runs // 2
    assert index._records <= len(index) + runs + steps
