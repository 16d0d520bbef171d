"""A queue that serves keys in turn, so that many items of one key do not delay items of another."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items in insertion order per key, with keys served in turn."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._items.values()))

    def __repr__(self) -> str:
        return f"FairQueue({self.lengths})"

    @property
    def lengths(self) -> dict[str, int]:
        """Number of items of each key."""
        return {key: len(items) for key, items in self._items.items()}

    def put(self, key: str, item: T) -> None:
        """Append an item to its key's items."""
        self._items.setdefault(key, deque()).append(item)

    def pop(self, may_go: Callable[[str], bool] = lambda _: True) -> T | None:
        """Remove and return the next item, or None.

        Args:
            may_go: returns whether a key may be served now; otherwise the key keeps its position.
        """
        key = next(filter(may_go, self._items), None)
        if key is None:
            return None
        items = self._items.pop(key)
        item = items.popleft()
        if items:
            self._items[key] = items  # behind the other keys
        return item

    def remove(self, key: str, item: T) -> None:
        """Remove an item if it is still queued."""
        items = self._items.get(key)
        if items is not None and item in items:
            items.remove(item)
            if not items:
                del self._items[key]
