"""What a peer's bytes may cost: memory of caches, and work in proportion to what is used of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.wire import ack_set, batch, message_rows

words = st.lists(st.integers(-(2**63), 2**64 - 1), max_size=6)


def test_beginnings_of_rows_are_kept_up_to_a_number() -> None:
    for size in range(5000):
        payload = b"p" * size
        payloads, _ = batch.split_batch(batch.encode_rows([payload], [b"\x28\x07"]), 1)
        assert payloads == [payload]
    assert len(message_rows._prefixes) == 4096


class Counted(Sequence[int]):
    """A list of words that says how many of them were looked at."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.taken = 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        assert isinstance(index, slice)
        found = [-1] * len(range(*index.indices(self.length)))
        self.taken += len(found)
        return found


@pytest.mark.parametrize(("messages", "taken"), [(1, 1), (64, 1), (65, 2), (1000, 16), (0, 1)])
def test_no_more_of_an_ack_set_is_looked_at_than_the_batch_has_words(messages: int, taken: int) -> None:
    long = Counted(1_000_000)
    assert ack_set.cut(long, messages) == (-1,) * taken
    assert long.taken == taken


@given(words, words, st.integers(0, 400))
def test_sets_of_words_behave_as_sets_of_messages(first: list[int], second: list[int], messages: int) -> None:
    one, two = set(ack_set.wanted(tuple(first))), set(ack_set.wanted(tuple(second)))
    assert set(ack_set.wanted(ack_set.intersect(first, second))) == one & two
    assert ack_set.from_wanted(one) == ack_set.cut(first, 10**6)
    assert ack_set.count(first) == len(one)
    limit = 64 * max(ack_set.words_for(messages), 1)
    assert set(ack_set.wanted(ack_set.cut(first, messages))) == {index for index in one if index < limit}
