"""Bytes behind a position are those of the entries there, however the sizes of entries differ."""

from __future__ import annotations

from pathlib import Path

import pytest
from magnetar.broker.storage.config import StorageConfig
from magnetar.wire.position import EARLIEST

from tests.storage.test_store import LOG, append, checkpoint, running

SIZES = [90_000, 10, 0, 70_000, 300_000, 5, 5, 5, 20_000, 1]


@pytest.mark.parametrize("moved", [0, 5, 10])
@pytest.mark.parametrize("per_ledger", [3, 100])
async def test_bytes_are_measured_and_divided_exactly(tmp_path: Path, moved: int, per_ledger: int) -> None:
    config = StorageConfig(journal_file_bytes=1024 * 1024, max_ledger_entries=per_ledger, tail_cache_bytes=0)
    async with running(tmp_path, config) as storage:
        log = storage.open_log(LOG)
        assert await log.bytes_behind(EARLIEST) == 0
        assert await log.position_leaving(0) == EARLIEST
        positions = await append(log, *(bytes(size) for size in SIZES[:moved])) if moved else []
        if moved:
            await checkpoint(storage)
        if moved < len(SIZES):
            positions += await append(log, *(bytes(size) for size in SIZES[moved:]))
        before = [log.before(log.first_position), *positions]
        left = [sum(SIZES[index:]) for index in range(len(SIZES) + 1)]
        for position, size in zip(before, left, strict=True):
            assert await log.bytes_behind(position) == size
        for limit in (0, 1, 20_000, 20_001, 20_016, 320_016, 480_025, 480_026, 1_000_000):
            index = next(index for index, size in enumerate(left) if size <= limit)
            assert await log.position_leaving(limit) == before[index], limit


async def test_a_small_backlog_behind_large_entries_is_estimated_as_small(tmp_path: Path) -> None:
    async with running(tmp_path, StorageConfig(journal_file_bytes=1024 * 1024)) as storage:
        log = storage.open_log(LOG)
        large = await append(log, *[bytes(100_000)] * 10)
        await append(log, *[bytes(10)] * 5)
        assert log.about_bytes_behind(large[-1]) == 50
        assert log.about_bytes_behind(EARLIEST) == log.total_bytes == 1_000_050
