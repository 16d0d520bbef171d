"""A lock whose waiters take turns by key."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.tasks import FairLock


async def test_waiters_take_turns_by_key() -> None:
    lock = FairLock()
    order: list[str] = []

    async def work(key: str) -> None:
        async with lock.turn(key[0]):
            order.append(key)
            await asyncio.sleep(0)

    await asyncio.gather(*map(work, ["a1", "a2", "a3", "a4", "b1", "c1", "b2"]))
    assert order == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]
    assert repr(lock) == "FairLock(held=False, waiting={})"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=12), st.data())
def test_one_holder_at_a_time_whoever_is_cancelled(works: list[tuple[str, int]], data: st.DataObject) -> None:
    async def run() -> None:
        lock = FairLock()
        holders = 0
        done = 0

        async def work(key: str, turns: int) -> None:
            nonlocal holders, done
            async with lock.turn(key):
                holders += 1
                assert holders == 1
                try:
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    done += 1
                finally:
                    holders -= 1

        tasks = [asyncio.create_task(work(*each)) for each in works]
        cancelled = 0
        for task in tasks:
            for _ in range(data.draw(st.integers(0, 2))):
                await asyncio.sleep(0)
            if data.draw(st.booleans()):
                cancelled += task.cancel()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)
        assert done >= len(works) - cancelled
        assert all(one is None or isinstance(one, asyncio.CancelledError) for one in results)
        assert repr(lock) == "FairLock(held=False, waiting={})"

    asyncio.run(run())


async def test_exception_in_the_body_releases_the_lock() -> None:
    lock = FairLock()
    with pytest.raises(ValueError, match="x"):
        async with lock.turn("a"):
            raise ValueError("x")
    async with lock.turn("a"):
        pass
