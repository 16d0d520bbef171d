"""Keys of entries, and the assignment of keys to consumers of Key_Shared subscriptions. Pure logic.

Keys are hashed to slots, and a selector assigns slots to consumers. There is a selector for each of Pulsar 4.0's three
methods.

Source: Pulsar binary protocol, section Key_Shared.
"""

from __future__ import annotations

import base64
import binascii
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

from ...errors import ConsumerAssignError, ProtocolError
from ...wire.hashing import murmur3_32
from ...wire.payload import open_payload
from ...wire.pulsar_api_pb2 import CommandSubscribe

SLOTS = 65536
"""Number of slots; no key hashes to slot 0."""
POINTS = 100
"""Number of points per consumer on the hash ring."""
NO_KEY = b"NONE_KEY"
"""Key of entries with unreadable metadata."""

Range = tuple[int, int]
"""First and last slot, inclusive."""


def entry_key(payload: bytes) -> bytes:
    """Return the routing key of an entry: its ordering key, its partition key, or else a unique key.

    Args:
        payload: payload section of the entry; for a batch, the metadata of the whole batch counts.
    """
    try:
        metadata, _ = open_payload(payload)
    except ProtocolError:
        return NO_KEY
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key"):
        key = _bytes(metadata.partition_key)
        if metadata.partition_key_b64_encoded:
            try:
                return base64.b64decode(key, validate=True)
            except binascii.Error:
                return key  # marked as base64 but invalid, so used unchanged
        return key
    return b"%b-%d" % (_bytes(metadata.producer_name), metadata.sequence_id)


def _bytes(text: str | bytes) -> bytes:
    """Return the bytes of a string field, which is already bytes if it is not valid UTF-8."""
    return text.encode() if isinstance(text, str) else text


class Named(Protocol):
    """A consumer, as seen by a selector."""

    name: str

    @property
    def key_ranges(self) -> Sequence[Range]:
        """Slot ranges requested by the consumer."""


C = TypeVar("C", bound=Named)


class Selector(ABC, Generic[C]):
    """Assigns slots to consumers."""

    def slot(self, key: bytes) -> int:
        """Return the slot of a key, from 1 to 65535."""
        return murmur3_32(key) % SLOTS or 1

    def conflict(self, ranges: Sequence[Range]) -> C | None:
        """Return the consumer whose slots conflict with ``ranges``, or None if a consumer with these ranges may join.

        Raises:
            ConsumerAssignError: no slots can be assigned to the new consumer.
        """
        return None

    @abstractmethod
    def add(self, consumer: C) -> None:
        """Assign slots to a consumer.

        Raises:
            ConsumerAssignError: no slots can be assigned to the consumer; see `conflict`.
        """

    @abstractmethod
    def remove(self, consumer: C) -> None:
        """Remove a consumer, so that its slots are assigned to others or have no owner."""

    @abstractmethod
    def select(self, slot: int) -> C | None:
        """Return the owner of a slot, or None."""

    @abstractmethod
    def ranges(self) -> list[tuple[C, Range]]:
        """Return the slot ranges with their owners, in ascending order."""


class SplitRanges(Selector[C]):
    """Auto-split without consistent hashing: a new consumer receives the lower half of the largest range."""

    def __init__(self) -> None:
        self._bounds: list[int] = []
        self._owners: list[C] = []  # by index of the upper bound, which is part of the range

    def add(self, consumer: C) -> None:
        """Assign the lower half of the largest range to a consumer.

        Raises:
            ConsumerAssignError: all ranges consist of a single slot.
        """
        if not self._bounds:
            self._bounds, self._owners = [SLOTS], [consumer]
            return
        self.conflict(consumer.key_ranges)
        index, width = self._widest()
        self._bounds.insert(index, self._bounds[index] - (width >> 1))
        self._owners.insert(index, consumer)

    def conflict(self, ranges: Sequence[Range]) -> C | None:
        """Return None, since no ranges are requested.

        Raises:
            ConsumerAssignError: all ranges consist of a single slot.
        """
        if self._bounds and self._widest()[1] <= 1:
            raise ConsumerAssignError("No more range can assigned to new consumer")
        return None

    def _widest(self) -> tuple[int, int]:
        widths = [high - low for low, high in zip([0, *self._bounds], self._bounds, strict=False)]
        widest = max(widths)
        return widths.index(widest), widest

    def remove(self, consumer: C) -> None:
        """Merge a consumer's range into the next higher range, or the highest range into the next lower one."""
        if consumer not in self._owners:
            return
        index = self._owners.index(consumer)
        del self._owners[index]
        # If the highest range is removed, the range below it extends to the end.
        del self._bounds[index if index < len(self._owners) else max(index - 1, 0)]

    def select(self, slot: int) -> C | None:
        """Return the owner of a slot, or None if there are no consumers."""
        return self._owners[bisect_left(self._bounds, slot)] if self._owners else None

    def ranges(self) -> list[tuple[C, Range]]:
        """Return the slot ranges with their owners, in ascending order."""
        first = 0
        found = []
        for bound, owner in zip(self._bounds, self._owners, strict=True):
            found.append((owner, (first, bound)))
            first = bound + 1
        return found


class HashRing(Selector[C]):
    """Consistent hashing: each consumer has several points on a ring, and the next point owns a slot."""

    def __init__(self, points: int = POINTS) -> None:
        self._count = points
        self._points: list[int] = []  # in order
        self._queues: dict[
            int, list[C]
        ] = {}  # by point; the first consumer owns the point, the others are its successors
        self._indexes: dict[str, dict[int, C]] = {}  # by consumer name

    def slot(self, key: bytes) -> int:
        """Return the slot of a key, from 1 to 65535."""
        return murmur3_32(key) % (SLOTS - 1) + 1

    def _points_of(self, name: str, index: int) -> list[int]:
        return [
            self.slot(f"{name}\0{index}\0{number}".encode("utf-8", "backslashreplace")) for number in range(self._count)
        ]

    def add(self, consumer: C) -> None:
        """Add a consumer's points to the ring."""
        indexes = self._indexes.setdefault(consumer.name, {})
        index = next(number for number in range(len(indexes) + 1) if number not in indexes)
        indexes[index] = consumer
        for point in self._points_of(consumer.name, index):
            queue = self._queues.setdefault(point, [])
            if not queue:
                insort(self._points, point)
            queue.append(consumer)

    def remove(self, consumer: C) -> None:
        """Remove a consumer's points from the ring."""
        indexes = self._indexes.get(consumer.name, {})
        index = next((number for number, one in indexes.items() if one is consumer), None)
        if index is None:
            return
        del indexes[index]
        if not indexes:
            del self._indexes[consumer.name]
        for point in self._points_of(consumer.name, index):
            queue = self._queues[point]
            queue.remove(consumer)
            if not queue:
                del self._queues[point]
                del self._points[bisect_left(self._points, point)]

    def select(self, slot: int) -> C | None:
        """Return the owner of a slot, or None if there are no consumers."""
        if not self._points:
            return None
        index = bisect_left(self._points, slot)
        return self._queues[self._points[index if index < len(self._points) else 0]][0]

    def ranges(self) -> list[tuple[C, Range]]:
        """Return the slot ranges with their owners, in ascending order; adjacent ranges of a consumer are merged."""
        found: list[tuple[C, Range]] = []
        ends = [*self._points, SLOTS - 1] if self._points else []
        first = 1
        for end in ends:
            owner = self.select(end) if end >= first else None
            if owner is None:
                continue  # the last point is the last slot
            if found and found[-1][0] is owner:
                found[-1] = owner, (found[-1][1][0], end)
            else:
                found.append((owner, (first, end)))
            first = end + 1
        return found


class StickyRanges(Selector[C]):
    """Sticky ranges: consumers request ranges, and a slot outside all ranges has no owner."""

    def __init__(self) -> None:
        self._ranges: list[tuple[Range, C]] = []  # in order

    def conflict(self, ranges: Sequence[Range]) -> C | None:
        """Return a consumer that owns some of these slots, or None if all of them are available.

        Raises:
            ConsumerAssignError: the ranges are invalid.
        """
        check_ranges(ranges)
        for first, last in ranges:
            # Ranges do not overlap: candidates are the range that begins at or before ``first`` and the next one.
            index = max(self._index_of(first), 0)
            for (low, high), owner in self._ranges[index : index + 2]:
                if first <= high and low <= last:
                    return owner
        return None

    def add(self, consumer: C) -> None:
        """Assign the requested ranges to a consumer.

        Raises:
            ConsumerAssignError: the ranges are invalid, or another consumer owns some of the slots.
        """
        other = self.conflict(consumer.key_ranges)
        if other is not None:
            raise ConsumerAssignError(f"Range conflict with consumer {other.name}")
        self._ranges = sorted(
            [*self._ranges, *((each, consumer) for each in consumer.key_ranges)], key=lambda pair: pair[0]
        )

    def remove(self, consumer: C) -> None:
        """Release a consumer's ranges."""
        self._ranges = [pair for pair in self._ranges if pair[1] is not consumer]

    def select(self, slot: int) -> C | None:
        """Return the owner of a slot, or None."""
        index = self._index_of(slot)
        if index < 0:
            return None
        (_, last), owner = self._ranges[index]
        return owner if slot <= last else None

    def _index_of(self, slot: int) -> int:
        """Return the index of the last range that begins at or before a slot, or -1."""
        return bisect_left(self._ranges, slot + 1, key=lambda pair: pair[0][0]) - 1

    def ranges(self) -> list[tuple[C, Range]]:
        """Return the slot ranges with their owners, in ascending order."""
        return [(owner, each) for each, owner in self._ranges]


def check_ranges(ranges: Sequence[Range]) -> None:
    """Validate the ranges requested by a consumer.

    Raises:
        ConsumerAssignError: there are no ranges, a range ends before it begins, or two ranges overlap.
    """
    if not ranges:
        raise ConsumerAssignError("Ranges for KeyShared policy must not be empty.")
    for first, last in ranges:
        if first > last:
            raise ConsumerAssignError(f"Fixed hash range start > end for range: [{first},{last}]")
    ordered = sorted(ranges)
    for (first, last), (low, high) in pairwise(ordered):
        if low <= last:
            raise ConsumerAssignError(f"Consumer's own ranges conflict: [{first},{last}] overlaps with [{low},{high}]")


def ranges_of(command: CommandSubscribe) -> list[Range]:
    """Return the ranges requested by a consumer, in ascending order.

    Raises:
        ConsumerAssignError: there are more ranges than slots.
    """
    ranges = command.keySharedMeta.hashRanges
    if len(ranges) > SLOTS:
        raise ConsumerAssignError(f"{len(ranges)} hash ranges: expected at most {SLOTS}, one for each slot")
    return sorted((each.start, each.end) for each in ranges)


def has_key(ranges: Sequence[Range], payload: bytes) -> bool:
    """Return whether the key of an entry is in ``ranges``, which must be ascending and must not overlap."""
    slot = murmur3_32(entry_key(payload)) % SLOTS or 1
    index = bisect_left(ranges, slot + 1, key=itemgetter(0)) - 1
    return index >= 0 and slot <= ranges[index][1]
