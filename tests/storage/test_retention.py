"""Which ledgers may go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.storage.ledgers.ledger_list import ClosedLedger, ledgers_to_drop

NOW = 1_000_000


def ledgers(*consumed: bool) -> list[ClosedLedger]:
    """Ledgers of 100 bytes, the first closed 5,000 ms ago, then 4,000, …"""
    return [ClosedLedger(n, 100, NOW - 5000 + 1000 * n, is_consumed) for n, is_consumed in enumerate(consumed)]


@pytest.mark.parametrize(
    ("consumed", "retention_ms", "retention_bytes", "expected"),
    [
        ((True, True, True), 0, 0, [0, 1, 2]),
        ((True, False, True), 0, 0, [0]),
        ((False, True), 0, 0, []),
        ((True, True, True), -1, -1, []),
        ((True, True, True), 3500, -1, [0, 1]),
        ((True, True, True), -1, 250, []),
        ((True, True, True), -1, 150, [0]),
        ((True, True, True), 4500, 150, [0]),
        ((True, True, True), 10_000, 10_000, []),
    ],
)
def test_oldest_consumed_ledgers_beyond_retention_go(
    consumed: tuple[bool, ...], retention_ms: int, retention_bytes: int, expected: list[int]
) -> None:
    assert ledgers_to_drop(ledgers(*consumed), 0, retention_ms, retention_bytes, NOW) == expected


@given(
    st.lists(st.booleans(), max_size=6),
    st.integers(-1, 7000),
    st.integers(-1, 800),
    st.integers(0, 300),
)
def test_what_goes_is_a_consumed_prefix_and_leaves_what_retention_grants(
    consumed: list[bool], retention_ms: int, retention_bytes: int, open_bytes: int
) -> None:
    all_ledgers = ledgers(*consumed)
    dropped = ledgers_to_drop(all_ledgers, open_bytes, retention_ms, retention_bytes, NOW)
    assert dropped == list(range(len(dropped)))
    assert all(consumed[number] for number in dropped)
    left = open_bytes + 100 * (len(all_ledgers) - len(dropped))
    for number in dropped:
        is_expired = 0 <= retention_ms <= NOW - all_ledgers[number].closed_ms
        assert is_expired or 0 <= retention_bytes <= left + 100 * (len(dropped) - 1 - number)
