"""One log under the managers: turns, lost answers, fencing, records that nobody can read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from magnetar.errors import NotLeader, OperationTimeout
from magnetar.metadata import replicated_log
from magnetar.metadata.replicated_log import LogRecord, ReplicatedLog

from .memory_log import MemoryLog


class Values:
    """State machine that keeps the values; one of a question mark cannot be read."""

    def __init__(self, storage: MemoryLog) -> None:
        self.values: list[bytes] = []
        self.log = ReplicatedLog(storage, self._apply, "test", "value")

    def _apply(self, _key: str | None, value: bytes, _properties: Mapping[str, str]) -> None:
        if value == b"?":
            raise ValueError("a riddle")
        self.values.append(value)

    async def add(self, value: bytes) -> None:
        async with self.log.turn() as turn:
            if turn is None:
                raise NotLeader("not here")
            await turn.append([LogRecord("key", value)])


@pytest.fixture
def storage() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
async def values(storage: MemoryLog) -> Values:
    values = Values(storage)
    await storage.lead(values.log)
    return values


async def test_an_append_returns_once_its_record_is_applied(values: Values) -> None:
    await asyncio.gather(values.add(b"1"), values.add(b"2"))
    assert values.values == [b"1", b"2"]


async def test_a_follower_has_no_turn(values: Values) -> None:
    values.log.follow()
    with pytest.raises(NotLeader, match="not here"):
        await values.add(b"1")


async def test_a_failed_append_ends_the_leadership_and_is_seen_by_the_next(values: Values, storage: MemoryLog) -> None:
    storage.fails_after_writing = True
    with pytest.raises(NotLeader, match="lost its log producer: the answer was lost"):
        await values.add(b"1")
    assert not values.log.is_leading
    await storage.lead(values.log)
    assert values.values == [b"1"]


async def test_a_turn_sees_what_a_cancelled_one_has_written(values: Values, storage: MemoryLog) -> None:
    storage.is_late = True
    adding = asyncio.create_task(values.add(b"1"))
    await asyncio.sleep(0.01)
    adding.cancel()
    await asyncio.gather(adding, return_exceptions=True)
    assert values.values == []
    async with values.log.turn():
        assert values.values == [b"1"]


async def test_a_turn_of_an_earlier_leadership_is_not_current(values: Values, storage: MemoryLog) -> None:
    async with values.log.turn() as turn:
        assert turn is not None
        assert turn.is_current
        values.log.follow()
        await storage.lead(values.log)
        assert not turn.is_current


async def test_a_record_that_does_not_come_back_is_an_error(
    values: Values, storage: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicated_log, "APPLY_TIMEOUT_S", 0.01)
    storage.is_late = True
    with pytest.raises(OperationTimeout, match="value 1:0 was written but not read back"):
        await values.add(b"1")


async def test_unreadable_and_repeated_records_are_passed_over(
    values: Values, caplog: pytest.LogCaptureFixture
) -> None:
    for index, value in ((0, b"1"), (1, b"?"), (1, b"again"), (2, b"2")):
        values.log.apply((1, index), "key", value, {})
    assert values.values == [b"1", b"2"]
    assert values.log.unreadable_records == 1
    assert "skipped record 1:1 of the test topic: a riddle" in caplog.text
