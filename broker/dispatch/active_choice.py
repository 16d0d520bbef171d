"""Choice of the active consumer of a failover subscription; pure.

Of the consumers with the best priority, sorted by name, a partition takes number ``partition mod n``, which spreads
the partitions of a topic over them. A topic without partitions asks a ring of hashes instead, so that many such topics
spread too; a consumer that joins may therefore become active at once.

Source: Pulsar binary protocol, section Exclusive and Failover.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ...wire.hashing import murmur3_32

POINTS_PER_CONSUMER = 100


class Candidate(NamedTuple):
    """A consumer, as the choice sees it; a lower priority number is better."""

    priority: int
    name: str


def choose_active(candidates: Sequence[Candidate], topic: str, partition: int) -> int | None:
    """Return the index of the active one among ``candidates`` (in order of joining), None if there is none.

    Args:
        candidates: every consumer of the subscription.
        topic: full name of the topic.
        partition: its index, -1 for a topic without partitions.
    """
    if not candidates:
        return None
    order = sorted(range(len(candidates)), key=candidates.__getitem__)
    best = candidates[order[0]].priority
    order = [index for index in order if candidates[index].priority == best]
    if partition >= 0:
        return order[partition % len(order)]
    return order[_on_ring(tuple(candidates[index].name for index in order), topic)]


def _on_ring(names: tuple[str, ...], topic: str) -> int:
    """Return the index in ``names`` that owns the topic's point on the ring."""
    if len(names) == 1:
        return 0
    owners: dict[int, int] = {}
    for index, name in enumerate(names):
        for point in _points(name):
            owners[point] = index  # of equal points the last name in order wins
    ring = sorted(owners)
    place = bisect_left(ring, murmur3_32(topic.encode()))
    return owners[ring[place % len(ring)]]


@lru_cache(maxsize=4096)
def _points(name: str) -> tuple[int, ...]:
    return tuple(murmur3_32(f"{name}{number}".encode()) for number in range(POINTS_PER_CONSUMER))
