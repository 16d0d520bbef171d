"""Who counts as there although nobody sees him: absence is forgiven for a while; pure.

Absence counts only while the leader itself sees the roster, and starts anew when it begins to lead or was cut off: a
restart of the broker, after which everybody comes back one by one, moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable


class AbsenceClock:
    """Remembers since when a worker has been missing."""

    def __init__(self, timeout_s: float) -> None:
        """Forgive an absence of `timeout_s` seconds."""
        self._timeout_s = timeout_s
        self._missing_since: dict[str, float] = {}

    def restart(self) -> None:
        """Begin anew: what was missing before was missing for reasons of our own."""
        self._missing_since.clear()

    def excused(self, owners: Iterable[str], members: Iterable[str], now: float) -> frozenset[str]:
        """Return the owners of instances that are missing, but not for long enough to count.

        Args:
            owners: ids of all workers that own an instance.
            members: ids of those that are there.
            now: monotonic seconds.
        """
        missing = set(owners) - set(members)
        self._missing_since = {worker: self._missing_since.get(worker, now) for worker in missing}
        return frozenset(worker for worker in missing if now - self._missing_since[worker] < self._timeout_s)
