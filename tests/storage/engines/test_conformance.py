"""Tests that each storage engine implements the interface in `broker.storage.port`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
from magnetar.broker.storage.compacted_view import COMPACTION_CURSOR, CompactedReading, pack
from magnetar.broker.storage.port import EARLIEST, LogStore
from magnetar.errors import NotAllowed, StorageError, TopicTerminated
from magnetar.tasks import called_back
from magnetar.wire.ack_set import from_wanted
from magnetar.wire.position import Position

from .engine import DURABLE, ENGINES, LEDGER_BYTES, LEDGER_ENTRIES, append, created, everything, refusal

NAME = "persistent://public/default/t"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=list(ENGINES))
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[LogStore]:
    async with ENGINES[request.param](tmp_path / "store", clock) as it:
        yield it


async def test_entries_are_read_in_append_order(store: LogStore) -> None:
    log = await created(store, NAME)
    assert log.last_confirmed == EARLIEST
    assert await everything(log) == []
    ends: list[Position] = []
    payloads = [b"%d" % number for number in range(3 * LEDGER_ENTRIES + 1)]
    stored = asyncio.get_running_loop().create_future()

    def done(position: Position, error: Exception | None) -> None:
        assert error is None
        ends.append(position)
        if len(ends) == len(payloads):
            stored.set_result(None)

    for number, payload in enumerate(payloads):
        log.append(payload, number + 1, number, done)
    await stored
    found = await everything(log)
    assert [entry.payload for entry in found] == payloads
    assert [entry.messages for entry in found] == list(range(1, len(payloads) + 1))
    assert [entry.position for entry in found] == ends
    assert all(one < other for one, other in pairwise(ends))
    assert (log.entry_count, log.last_confirmed, log.first_position) == (len(payloads), ends[-1], ends[0])
    assert log.total_bytes == sum(map(len, payloads))
    assert [ledger.entries for ledger in log.ledgers()] == [LEDGER_ENTRIES] * 3 + [1]
    assert [ledger.is_open for ledger in log.ledgers()] == [False] * 3 + [True]


async def test_reads_respect_their_limits(store: LogStore) -> None:
    log = await created(store, NAME)
    positions = [await append(log, bytes(100)) for _ in range(5)]
    assert len(await log.load(EARLIEST, 3, 10_000)) == 3
    assert len(await log.load(EARLIEST, 10, 250)) == 2
    assert len(await log.load(EARLIEST, 10, 1)) == 1, "at least one entry is returned, even if it is too large"
    assert [entry.position for entry in await log.load(positions[3], 10, 10_000)] == positions[3:]
    assert await log.load(log.next_position(positions[4]), 10, 10_000) == []


async def test_entries_between_positions_are_counted(store: LogStore) -> None:
    log = await created(store, NAME, 25)
    positions = [entry.position for entry in await everything(log)]
    assert log.entries_between(EARLIEST, positions[24]) == 25
    assert log.entries_between(positions[3], positions[14]) == 11
    assert log.entries_between(positions[14], positions[3]) == 0
    assert [log.position_behind(EARLIEST, number + 1) for number in range(25)] == positions
    assert all(log.next_position(one) == other for one, other in pairwise(positions))
    assert all(map(log.holds, positions))
    assert not log.holds(Position(positions[0].ledger_id, LEDGER_ENTRIES))
    assert not log.holds(log.next_position(positions[-1]))


async def test_bytes_are_counted(store: LogStore) -> None:
    log = await created(store, NAME)
    sizes = [7 * number + 1 for number in range(25)]
    positions = [await append(log, bytes(size)) for size in sizes]
    for number in (0, 9, 10, 17, 24):
        assert await log.bytes_behind(positions[number]) == sum(sizes[number + 1 :])
        assert await log.position_leaving(sum(sizes[number + 1 :])) == positions[number]
    assert await log.bytes_behind(EARLIEST) == log.total_bytes == sum(sizes)


async def test_positions_are_found_by_publish_time_and_age(store: LogStore, clock: Clock) -> None:
    log = await created(store, NAME)
    times = [500, 100, 900, 300, 900, 200]
    positions = [await append(log, b"x", time_ms=time) for time in times]
    assert await log.position_before_time(0) < positions[0]
    assert await log.position_before_time(501) == positions[1]
    assert await log.position_before_time(501, positions[2]) == positions[3]
    assert await log.position_before_time(901) == positions[-1]
    assert await log.position_before_age(901) == positions[-1]
    clock.now_s += 10
    log.close_ledger()
    newer = await append(log, b"x", time_ms=20_000_000)
    long_after_ms = int(clock.now_s * 1000) + 1
    assert await log.position_before_age(long_after_ms) == positions[-1], "the ledger was closed before that time"
    assert await log.position_before_age(30_000_000) == newer


async def test_a_terminated_log_rejects_entries(store: LogStore) -> None:
    log = await created(store, NAME, 3)
    assert await log.terminate() == log.last_confirmed
    assert isinstance(await refusal(log), TopicTerminated)
    assert log.is_terminated
    assert len(await everything(log)) == 3


async def test_deleting_a_log_does_not_affect_other_logs(store: LogStore) -> None:
    log = await created(store, NAME, 3)
    other = await created(store, NAME + "2", 2)
    assert sorted(store.log_names()) == [NAME, NAME + "2"]
    store.open_log(NAME + "3")
    assert not store.has_log(NAME + "3"), "a log is listed after its first change"
    await store.delete_log(NAME)
    await store.delete_log("unknown")
    assert (log.is_deleted, store.has_log(NAME), store.log_names()) == (True, False, [NAME + "2"])
    assert isinstance(await refusal(log), StorageError)
    assert [entry.payload for entry in await everything(other)] == [b"0", b"1"]
    successor = await created(store, NAME, 1)
    assert successor is not log
    assert successor.entry_count == 1
    assert successor.first_position > other.first_position, "positions are never reused"


async def test_a_volatile_log_stores_nothing(store: LogStore) -> None:
    log = store.volatile_log("non-persistent://public/default/t")
    assert isinstance(await refusal(log), NotAllowed)
    with pytest.raises(NotAllowed):
        log.open_cursor("s", EARLIEST)
    with pytest.raises(NotAllowed):
        await log.terminate()
    assert log.memory_cursor("s", log.last_confirmed).backlog_entries == 0
    assert store.log_names() == []


async def test_cursors_have_names_properties_and_numbers(store: LogStore) -> None:
    log = await created(store, NAME, 3)
    await called_back(lambda done: log.open_cursor("s", EARLIEST, {"a": "b"}, done))
    cursor = log.cursors["s"]
    assert (cursor.name, cursor.is_durable, cursor.properties, cursor.numbers) == ("s", True, {"a": "b"}, {})
    assert log.open_cursor("s", log.last_confirmed, {"c": "d"}) is cursor, "an existing cursor is not changed"
    assert cursor.backlog_entries == 3
    first = log.first_position
    await called_back(lambda done: cursor.note(first, {"n": 1, "m": 2}, (), done, {"e": "f"}))
    await called_back(lambda done: cursor.note(first, {"n": 3}, ("m",), done))
    assert (cursor.mark_delete, cursor.properties, cursor.numbers) == (first, {"e": "f"}, {"n": 3})
    for name in ("\ud800", "x" * 2000, COMPACTION_CURSOR):
        with pytest.raises(NotAllowed):
            log.open_cursor(name, EARLIEST)
    with pytest.raises(NotAllowed):
        log.open_cursor("t", EARLIEST, {"k": "\ud800"})
    assert list(log.cursors) == ["s"]
    await log.delete_cursor("s")
    await log.delete_cursor("s")
    assert not log.cursors


async def test_a_memory_cursor_is_not_listed(store: LogStore) -> None:
    log = await created(store, NAME, 3)
    cursor = log.memory_cursor("r", log.first_position, {"a": "b"})
    assert (cursor.is_durable, cursor.backlog_entries, cursor.properties) == (False, 2, {"a": "b"})
    await called_back(lambda done: cursor.acknowledge([(log.last_confirmed, None)], done))
    assert cursor.backlog_entries == 1
    await cursor.reset(log.first_position)
    assert cursor.backlog_entries == 3
    assert not log.cursors


async def test_single_messages_of_an_entry_are_acknowledged(store: LogStore) -> None:
    log = await created(store, NAME)
    position = await append(log, b"xyz", messages=3)
    cursor = log.open_cursor("s", EARLIEST)
    wanted = from_wanted([0, 2])
    await called_back(lambda done: cursor.acknowledge([(position, wanted)], done))
    assert cursor.remaining(position) == wanted
    assert (cursor.is_acknowledged(position), cursor.has_holes, cursor.backlog_entries) == (False, True, 1)
    await called_back(lambda done: cursor.acknowledge([(position, from_wanted([1, 2]))], done))
    assert cursor.remaining(position) == from_wanted([2])
    await called_back(lambda done: cursor.acknowledge([(position, from_wanted([0, 1]))], done))
    assert (cursor.is_acknowledged(position), cursor.remaining(position)) == (True, None)
    assert (cursor.mark_delete, cursor.backlog_entries) == (position, 0)


async def test_acknowledging_positions_that_never_existed_has_no_effect(store: LogStore) -> None:
    log = await created(store, NAME, 3)
    cursor = log.open_cursor("s", EARLIEST)
    last = log.last_confirmed
    for position in (Position(last.ledger_id, 99), Position(last.ledger_id + 5, 0)):
        await called_back(lambda done, position=position: cursor.acknowledge([(position, None)], done))  # type: ignore[misc]
        await called_back(lambda done, position=position: cursor.acknowledge_up_to(position, None, done))  # type: ignore[misc]
    assert (cursor.backlog_entries, cursor.has_holes) == (3, False)


async def test_only_consumed_ledgers_are_trimmed(store: LogStore, clock: Clock) -> None:
    log = await created(store, NAME, 3 * LEDGER_ENTRIES + 1)
    positions = [entry.position for entry in await everything(log)]
    cursor = log.open_cursor("s", EARLIEST)
    assert await log.trim(0, 0) == []
    await called_back(lambda done: cursor.acknowledge_up_to(positions[2 * LEDGER_ENTRIES], None, done))
    assert await log.trim(60_000, -1) == [], "the ledgers are within the retention time"
    clock.now_s += 61
    assert log.next_trim_ms(-1) is None
    assert log.next_trim_ms(60_000) == int((clock.now_s - 1) * 1000)
    assert await log.trim(60_000, -1) == [positions[0].ledger_id, positions[LEDGER_ENTRIES].ledger_id]
    assert log.first_position == positions[2 * LEDGER_ENTRIES]
    assert [entry.position for entry in await everything(log)] == positions[2 * LEDGER_ENTRIES :]
    log.is_compacting = True
    await called_back(lambda done: cursor.acknowledge_up_to(positions[-1], None, done))
    assert await log.trim(0, 0) == []
    log.is_compacting = False
    log.close_ledger()
    assert len(await log.trim(0, 0)) == 2
    assert (log.entry_count, log.last_confirmed, cursor.backlog_entries) == (0, positions[-1], 0)
    later = await append(log, b"later")
    assert later > positions[-1]
    assert cursor.backlog_entries == 1


async def test_ledgers_with_delayed_entries_are_recorded(store: LogStore) -> None:
    log = await created(store, NAME, 1)
    assert not log.delayed_ledgers
    log.expect_delayed()
    position = await append(log, b"x")
    assert log.delayed_ledgers == {position.ledger_id}
    log.close_ledger()
    await append(log, b"x")
    log.open_cursor("s", log.last_confirmed)
    await log.trim(0, 0)
    assert not log.delayed_ledgers


async def test_a_view_replaces_older_entries(store: LogStore) -> None:
    log = await created(store, NAME, 15)
    entries = await everything(log)
    await called_back(lambda done: log.open_cursor(COMPACTION_CURSOR, EARLIEST, None, done, is_internal=True))
    for kept, end in (([3, 8, 12], 14), ([8], 14)):
        log.is_compacting = True
        hidden = log.begin_view()
        for number in kept:
            await append(hidden, pack(entries[number].position, entries[number].payload))
        await called_back(hidden.create)
        assert sorted(store.log_names()) == [NAME]
        old, first, horizon = log.view, entries[kept[0]].position, entries[end].position
        await called_back(
            lambda done, hidden=hidden, first=first, horizon=horizon: log.switch_view(hidden, first, horizon, done)  # type: ignore[misc]
        )
        if old is not None:
            await called_back(lambda done, old=old: log.drop_view(old.log, done))  # type: ignore[misc]
        log.is_compacting = False
        assert log.view is not None
        assert (log.view.first, log.view.horizon, log.first_compacted) == (first, horizon, log.first_position)
        reading = CompactedReading(log)
        found = await reading.load(EARLIEST, 100, 10_000)
        assert found == [entries[number] for number in kept]
        last = await log.view.last()
        assert last == entries[kept[-1]]
    assert log.cursors[COMPACTION_CURSOR].mark_delete == entries[14].position
    log.close_ledger()
    assert len(await log.trim(0, 0)) == 2
    assert log.first_compacted == entries[8].position
    later = await append(log, b"later")
    assert [entry.position for entry in await reading.load(log.next_position(entries[14].position), 9, 99)] == [later]


async def test_a_barrier_completes_after_all_previous_changes(store: LogStore) -> None:
    log = await created(store, NAME)
    ends: list[str] = []
    log.append(b"x", 1, 0, lambda *_: ends.append("entry"))
    cursor = log.open_cursor("s", EARLIEST, None, lambda _: ends.append("cursor"))
    cursor.acknowledge_up_to(EARLIEST, None, lambda _: ends.append("ack"))
    await called_back(log.barrier)
    assert ends == ["entry", "cursor", "ack"]


async def test_changed_logs_are_reported_once(store: LogStore) -> None:
    log = await created(store, NAME, 1)
    other = await created(store, NAME + "2")
    assert set(store.take_touched()) == {log, other}
    assert list(store.take_touched()) == []
    other.touch()
    assert list(store.take_touched()) == [other]
    await append(log, b"x")
    assert list(store.take_touched()) == [log]


async def test_ledgers_end_by_size_and_by_age(store: LogStore, clock: Clock) -> None:
    log = await created(store, NAME)
    for _ in range(3):
        await append(log, bytes(LEDGER_BYTES // 2))
    assert [ledger.entries for ledger in log.ledgers()] == [2, 1]
    clock.now_s += 5 * 3600
    assert len(await log.trim(0, 0)) == 2, "no cursor has to read them, and the last one is old"
    assert log.entry_count == 0


async def test_a_failing_callback_harms_no_other_one(store: LogStore, caplog: pytest.LogCaptureFixture) -> None:
    log = await created(store, NAME)

    def failing(*_: object) -> None:
        raise ValueError("a bug of the caller")

    log.append(b"a", 1, 0, failing)
    log.open_cursor("s", EARLIEST, None, failing)
    await append(log, b"b")
    assert [entry.payload for entry in await everything(log)] == [b"a", b"b"]
    assert caplog.text.count("callback failed") == 2


@pytest.mark.parametrize("engine", DURABLE)
async def test_confirmed_changes_survive_a_restart(engine: str, tmp_path: Path, clock: Clock) -> None:
    async with ENGINES[engine](tmp_path / "store", clock) as store:
        log = await created(store, NAME, 25)
        entries = await everything(log)
        cursor = log.open_cursor("s", EARLIEST, {"a": "b"})
        await called_back(lambda done: cursor.acknowledge([(entries[3].position, None)], done))
        await called_back(lambda done: cursor.acknowledge_up_to(entries[1].position, None, done))
        await (await created(store, NAME + "2", 1)).terminate()
    async with ENGINES[engine](tmp_path / "store", clock) as store:
        log = store.open_log(NAME)
        assert await everything(log) == entries
        cursor = log.cursors["s"]
        assert (cursor.mark_delete, cursor.properties) == (entries[1].position, {"a": "b"})
        assert cursor.acknowledged_ranges() == [(entries[3].position, entries[3].position)]
        assert store.open_log(NAME + "2").is_terminated
