"""Numbers of messages, as sinks keep them: they grow with the place, and are the same when a message comes again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from magnetar.wire.position import Position
from magnetar.wire.position_sequence import MESSAGES_MAX, SequenceOverflow, first_message_number

PLACES = some.tuples(some.integers(0, 2**29 - 1), some.integers(0, 2**22 - 1), some.integers(0, MESSAGES_MAX - 1))


@given(PLACES, PLACES)
def test_numbers_are_ordered_as_places_are(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    first, second = (first_message_number(Position(*place[:2]), MESSAGES_MAX) + place[2] for place in (one, other))
    assert (first < second) == (one < other)
    assert 0 <= first < 2**63


@pytest.mark.parametrize(
    ("position", "messages"), [((2**29, 0), 1), ((0, 2**22), 1), ((7, 3), MESSAGES_MAX + 1), ((2**40, 2**30), 1)]
)
def test_a_place_without_a_number_is_refused(position: tuple[int, int], messages: int) -> None:
    with pytest.raises(SequenceOverflow, match="use ATLEAST_ONCE"):
        first_message_number(Position(*position), messages)
