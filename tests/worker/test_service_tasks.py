"""Tasks of a worker: one that the worker cannot do without ends it, one that it can do without begins anew."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from magnetar.errors import MagnetarError
from magnetar.worker.config import WorkerConfig
from magnetar.worker.service import WorkerService


@pytest.fixture
async def service(tmp_path: Path) -> WorkerService:
    service = WorkerService(
        WorkerConfig(service_url="pulsar://127.0.0.1:1", admin_url="http://127.0.0.1:1", data_dir=tmp_path)
    )
    service._failure = asyncio.get_running_loop().create_future()
    return service


@pytest.mark.parametrize("fails", [True, False])
async def test_a_worker_whose_log_reader_ends_ends_with_the_reason(service: WorkerService, fails: bool) -> None:
    async def read() -> None:
        if fails:
            raise KeyError("a record that nobody foresaw")

    service._spawn("metadata log", read)
    with pytest.raises(KeyError if fails else MagnetarError, match="nobody foresaw" if fails else "metadata log"):
        await service.wait_failed()
    await service.stop()


async def test_a_schedule_that_fails_is_logged_and_begun_anew(
    service: WorkerService, caplog: pytest.LogCaptureFixture
) -> None:
    rounds = asyncio.Queue[int]()

    async def schedule() -> None:
        rounds.put_nowait(1)
        if rounds.qsize() == 1:
            raise KeyError("a member that nobody foresaw")
        await asyncio.Event().wait()

    with caplog.at_level(logging.ERROR):
        service._keep("schedule", schedule)
        async with asyncio.timeout(30):
            while rounds.qsize() < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    assert "a member that nobody foresaw" in caplog.text
    failure = service._failure
    assert failure is not None
    assert not failure.done()
    await service.stop()
