"""Entries of several inputs become units of one input each, in the order of each input, however they are mixed."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as some
from magnetar.api.connector import Batching
from magnetar.instance.connectors.sink import Intake


class Entry:
    """An entry of so many messages of a byte each."""

    def __init__(self, number: int, messages: int) -> None:
        self.number = number
        self.payloads = [b"x"] * messages
        self.permits = messages
        self.body_bytes = messages
        self.metadata = SimpleNamespace(uncompressed_size=0)


class Thread:
    """A thread with an inbox."""

    def __init__(self, items: list[tuple[str, Entry]]) -> None:
        self.inbox = deque(items)

    def poll(self, wait_s: float = 0.0) -> tuple[str, Entry] | None:
        return self.inbox.popleft() if self.inbox else None

    def read(self, entry: Entry) -> None:
        return None


ITEMS = some.lists(some.tuples(some.sampled_from("abc"), some.integers(1, 5)), min_size=1, max_size=40)


@given(ITEMS, some.integers(1, 20), some.integers(1, 20))
def test_each_input_keeps_its_order_and_its_entries_come_together(
    given_items: list[tuple[str, int]], records: int, size: int
) -> None:
    items = [(source, Entry(number, messages)) for number, (source, messages) in enumerate(given_items)]
    thread: Any = Thread(items)
    intake: Any = Intake()
    intake.put_back(thread.inbox.popleft())
    units: list[tuple[str, list[int], int]] = []
    while intake or thread.inbox:
        if not intake:
            intake.put_back(thread.inbox.popleft())
        source, entry = intake.pop()
        unit, entries, empty = intake.gather(thread, source, entry, Batching(records, size))
        assert not empty
        assert unit.entries == entries
        assert len(unit) <= max(min(records, size), len(entries[0].payloads))
        units.append((source, [one.number for one in entries], len(unit)))
    for source in "abc":
        numbers = [number for of, group, _ in units if of == source for number in group]
        assert numbers == [entry.number for of, entry in items if of == source]
        lengths = [(group, length) for of, group, length in units if of == source]
        for (_, length), (following, _) in pairwise(lengths):
            assert length + len(items[following[0]][1].payloads) > min(records, size)  # it would not have fitted
