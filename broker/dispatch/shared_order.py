"""Order of the consumers of a shared subscription: whose turn it is; pure.

Consumers with a better priority are served first, as long as they have permits; among equals it goes round, beginning
after the one that was served last.

Source: Pulsar binary protocol, section Shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar


class Ranked(Protocol):
    """A consumer, as the order sees it."""

    @property
    def priority(self) -> int:
        """0 is served first."""


C = TypeVar("C", bound=Ranked)


class SharedOrder(Generic[C]):
    """Consumers by level of priority, each level with its own turn."""

    def __init__(self) -> None:
        self._levels: list[tuple[int, list[C]]] = []
        self._turns: dict[int, int] = {}  # by priority: index of who comes next

    def __iter__(self) -> Iterator[C]:
        return (consumer for _, level in self._levels for consumer in level)

    def __len__(self) -> int:
        return sum(len(level) for _, level in self._levels)

    def add(self, consumer: C) -> None:
        """Add a consumer behind those of its priority."""
        for priority, level in self._levels:
            if priority == consumer.priority:
                level.append(consumer)
                return
        self._levels.append((consumer.priority, [consumer]))
        self._levels.sort(key=lambda pair: pair[0])
        self._turns[consumer.priority] = 0

    def remove(self, consumer: C) -> bool:
        """Remove a consumer, without changing whose turn it is; returns whether it was there."""
        for number, (priority, level) in enumerate(self._levels):
            if priority == consumer.priority and consumer in level:
                index = level.index(consumer)
                del level[index]
                if index < self._turns[priority]:
                    self._turns[priority] -= 1
                if not level:
                    del self._levels[number]
                    del self._turns[priority]
                return True
        return False

    def next(self, is_available: Callable[[C], bool]) -> C | None:
        """Return who is served next, None if nobody is available; the turn passes on."""
        for priority, level in self._levels:
            count = len(level)
            first = self._turns[priority]
            for step in range(count):
                index = (first + step) % count
                if is_available(level[index]):
                    self._turns[priority] = (index + 1) % count
                    return level[index]
        return None
