"""Shares of a pool by key, and a queue whose keys take turns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.tasks import FairQueue, Room, Shares


def test_one_key_cannot_take_the_whole_pool() -> None:
    shares = Shares(4, 3)
    assert [shares.take("a") for _ in range(4)] == [Room.FREE] * 3 + [Room.SHARE_USED]
    assert [shares.take("b") for _ in range(2)] == [Room.FREE, Room.POOL_USED]
    shares.give_back("a", 2)
    assert shares.take("b", 2) is Room.FREE
    assert repr(shares) == "Shares(4 of 4, {'a': 1, 'b': 3})"


def test_an_amount_is_taken_whole_or_not_at_all() -> None:
    shares = Shares(100, 60)
    assert shares.take("a", 61) is Room.SHARE_USED
    assert shares.take("a", 60) is Room.FREE
    assert shares.take("b", 41) is Room.POOL_USED
    assert shares.taken_by("b") == 0
    with pytest.raises(AssertionError, match="'b' returned more than it took"):
        shares.give_back("b")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans())), st.integers(1, 5), st.integers(1, 5))
def test_what_is_taken_is_never_more_than_the_pool_and_the_share(
    steps: list[tuple[str, bool]], size: int, per_key: int
) -> None:
    shares = Shares(size, per_key)
    held: list[str] = []
    for key, takes in steps:
        if takes:
            if shares.take(key) is Room.FREE:
                held.append(key)
        elif key in held:
            held.remove(key)
            shares.give_back(key)
        assert len(held) <= size
        assert all(held.count(each) == shares.taken_by(each) <= per_key for each in "abc")


def test_keys_take_turns_and_a_key_that_may_not_go_keeps_its_place() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "b1", "c1"):
        queue.put(item[0], item)
    assert queue.pop(lambda key: key != "a") == "b1"
    assert queue.lengths == {"a": 2, "c": 1}
    assert [queue.pop() for _ in range(4)] == ["a1", "c1", "a2", None]


def test_an_item_that_is_removed_loses_its_place() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "b1"):
        queue.put(item[0], item)
    queue.remove("a", "a1")
    queue.remove("b", "b1")
    queue.remove("b", "b1")
    assert repr(queue) == "FairQueue({'a': 1})"
    assert len(queue) == 1
    assert queue.pop() == "a2"
