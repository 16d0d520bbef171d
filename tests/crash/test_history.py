"""The checks of the crash tests themselves: each kind of loss is seen."""

from __future__ import annotations

import pytest

from tests.crash.history import History, Place


def at(entry: int) -> Place:
    return 1, entry, -1


def stored(*numbers: int) -> list[tuple[Place, int]]:
    return [(at(entry), number) for entry, number in enumerate(numbers)]


def receipted(*numbers: int) -> History:
    return History(sent=len(numbers), receipts={number: at(entry) for entry, number in enumerate(numbers)})


def test_everything_receipted_and_some_twice_is_accepted_and_counted() -> None:
    assert receipted(0, 1, 2).check_stored(stored(0, 1, 2, 1, 2)) == 2


def test_lost_message_is_seen() -> None:
    with pytest.raises(AssertionError, match="1 receipted messages lost, first \\[2\\]"):
        receipted(0, 1, 2).check_stored(stored(0, 1))


def test_first_occurrences_out_of_order_are_seen() -> None:
    with pytest.raises(AssertionError, match="out of order"):
        receipted(0, 2, 1).check_stored(stored(0, 2, 1))


def test_receipt_of_another_place_is_seen() -> None:
    with pytest.raises(AssertionError, match="another place"):
        receipted(1, 0).check_stored(stored(0, 1))


def test_delivery_after_a_confirmed_acknowledgement_is_a_violation_from_the_next_session_on() -> None:
    history = receipted(0)
    history.on_delivery(at(0), 0)
    history.confirmed[at(0)] = 0
    history.on_delivery(at(0), 0)
    assert not history.violations
    history.session = 1
    history.on_delivery(at(0), 0)
    with pytest.raises(AssertionError, match="acknowledged in 0"):
        history.check_stored(stored(0))


def test_forgotten_acknowledgement_and_missing_rest_are_seen() -> None:
    history = receipted(0, 1)
    history.acknowledged.add(at(0))
    history.confirmed[at(0)] = 0
    history.check_rest([(at(1), 1)], stored(0, 1))
    with pytest.raises(AssertionError, match="1 confirmed acknowledgements forgotten"):
        history.check_rest(stored(0, 1), stored(0, 1))
    with pytest.raises(AssertionError, match="1 unacknowledged messages not delivered"):
        history.check_rest([], stored(0, 1))
