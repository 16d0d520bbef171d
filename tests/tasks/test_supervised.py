"""The supervised helper: no failure is lost, no task outlives its owner."""

from __future__ import annotations

import asyncio
import logging

import pytest
from magnetar.tasks import TaskSet, awaited_elsewhere, race


async def fail(text: str) -> None:
    raise ValueError(text)


async def test_failure_of_a_started_task_is_logged_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    tasks = TaskSet("broker")
    await asyncio.wait([tasks.start(fail("no disk"), "trim")])
    assert "'broker: trim' failed: no disk" in caplog.text
    assert len(tasks) == 0


async def test_failure_goes_to_the_given_handler_only(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []
    tasks = TaskSet("broker")
    await asyncio.wait([tasks.start(fail("no disk"), "trim", lambda failure: seen.append(str(failure)))])
    assert seen == ["no disk"]
    assert not caplog.records


async def test_failure_of_a_handler_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def handle(failure: BaseException) -> None:
        raise KeyError("wrong handler")

    await asyncio.wait([TaskSet("broker").start(fail("no disk"), "trim", handle)])
    assert "wrong handler" in caplog.text
    assert "no disk" in caplog.text


async def test_kept_work_begins_anew_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs < 4:
            raise ValueError(f"failure {runs}")

    await TaskSet("broker").keep(work, "rates", first_pause_s=0.001)
    assert runs == 4
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3


async def test_closing_ends_all_tasks_also_those_started_meanwhile() -> None:
    tasks = TaskSet("broker")
    ended: list[str] = []

    async def last() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("last")

    async def first() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            tasks.start(last(), "last")
            await asyncio.sleep(0)
            ended.append("first")

    tasks.start(first(), "first")
    await asyncio.sleep(0)
    await tasks.close()
    assert sorted(ended) == ["first", "last"]
    assert len(tasks) == 0


async def test_closing_from_one_of_the_tasks_does_not_wait_for_itself() -> None:
    tasks = TaskSet("broker")

    async def work() -> None:
        await tasks.close()

    task = tasks.start(work(), "stop")
    await asyncio.wait_for(task, 5)
    assert not task.cancelled()


async def test_failure_of_an_awaited_task_is_raised_there_only(caplog: pytest.LogCaptureFixture) -> None:
    task = TaskSet("broker").start(fail("no such topic"), "load", awaited_elsewhere)
    with pytest.raises(ValueError, match="no such topic"):
        await task
    assert not caplog.records


async def test_race_returns_the_first_result_and_cancels_the_rest() -> None:
    ended: list[str] = []

    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("slow")
        return "never"

    async def fast() -> str:
        return "fast"

    assert await race(slow(), fast()) == "fast"
    assert ended == ["slow"]


async def test_race_raises_the_failure_of_the_first() -> None:
    with pytest.raises(ValueError, match="first"):
        await race(asyncio.Event().wait(), fail("first"))


async def test_cancelled_race_cancels_and_awaits_all() -> None:
    ended: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(number)

    racing = asyncio.ensure_future(race(wait(1), wait(2)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    racing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert sorted(ended) == [1, 2]
