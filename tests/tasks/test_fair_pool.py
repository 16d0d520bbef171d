"""Locks and pools whose waiters take turns by key."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.tasks import FairLock, FairPool, Room


async def test_waiters_take_turns_by_key() -> None:
    lock = FairLock()
    order: list[str] = []

    async def work(key: str) -> None:
        async with lock.turn(key[0]):
            order.append(key)
            await asyncio.sleep(0)

    await asyncio.gather(*map(work, ["a1", "a2", "a3", "a4", "b1", "c1", "b2"]))
    assert order == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]
    assert repr(lock) == "FairLock(Shares(0 of 1, {}), waiting={})"


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
        assert repr(lock) == "FairLock(Shares(0 of 1, {}), waiting={})"

    asyncio.run(run())


async def test_exception_in_the_body_releases_the_lock() -> None:
    lock = FairLock()
    with pytest.raises(ValueError, match="x"):
        async with lock.turn("a"):
            raise ValueError("x")
    async with lock.turn("a"):
        pass


async def test_a_key_that_holds_its_share_waits_while_others_get_places() -> None:
    pool = FairPool(4, 2)
    for _ in range(2):
        await pool.take("greedy")
    waiters = [asyncio.create_task(pool.take("greedy")) for _ in range(3)]
    await asyncio.sleep(0)
    assert pool.room("greedy") is Room.SHARE_USED
    await pool.take("other")
    pool.give_back("greedy")
    await asyncio.sleep(0)
    assert [one.done() for one in waiters] == [True, False, False]
    await pool.take("other")
    pool.give_back("greedy")
    await waiters[1]
    for key in ("other", "other", "greedy"):
        pool.give_back(key)
    await waiters[2]
    pool.give_back("greedy")
    pool.give_back("greedy")
    assert repr(pool) == "FairPool(Shares(0 of 4, {}), waiting={})"


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.booleans()), max_size=15),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_all_get_a_place_in_the_end_and_never_more_than_there_are(
    works: list[tuple[str, int, bool]], size: int, per_key: int
) -> None:
    async def run() -> None:
        pool = FairPool(size, per_key)
        held: list[str] = []

        async def work(key: str, turns: int) -> None:
            async with pool.turn(key):
                held.append(key)
                assert len(held) <= size
                assert held.count(key) <= per_key
                for _ in range(turns):
                    await asyncio.sleep(0)
                held.remove(key)

        async def cancelled(key: str, turns: int) -> None:
            task = asyncio.create_task(work(key, 0))
            for _ in range(turns):
                await asyncio.sleep(0)
            if not task.done() and key not in held:
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        tasks = [(cancelled if cancels else work)(key, turns) for key, turns, cancels in works]
        await asyncio.wait_for(asyncio.gather(*tasks), 30)
        assert repr(pool) == f"FairPool(Shares(0 of {size}, {{}}), waiting={{}})"

    asyncio.run(run())


async def test_a_waiter_that_gives_up_leaves_nothing_behind() -> None:
    pool = FairPool(1, 1)
    await pool.take("a")
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await pool.take("a")
    assert repr(pool) == "FairPool(Shares(1 of 1, {'a': 1}), waiting={})"
