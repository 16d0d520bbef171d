"""GracePeriod: since when names have been missing, and which are still within their grace period.

The caller passes the time. It restarts the periods when names may have been missing for its own reasons, for example
when it becomes leader or was disconnected: so after a broker restart, when all workers reconnect one by one, a leader
does not move instances.
"""

from __future__ import annotations

from collections.abc import Iterable


class GracePeriod:
    """Tracks since when names have been missing."""

    def __init__(self, period_s: float) -> None:
        """Create a grace period of ``period_s`` seconds, starting when a name is first seen to be missing."""
        self._period_s = period_s
        self._missing_since: dict[str, float] = {}

    def restart(self) -> None:
        """Restart the periods of all names."""
        self._missing_since.clear()

    def forget(self, names: Iterable[str]) -> None:
        """Restart the periods of some names: they were present meanwhile, and may be missing again."""
        for name in names:
            self._missing_since.pop(name, None)

    def is_over(self, name: str, now: float) -> bool:
        """Return whether the period of a name has ended, if it was missing at the last call of `granted`."""
        return now - self._missing_since.get(name, now) >= self._period_s

    def granted(self, missing: Iterable[str], now: float) -> frozenset[str]:
        """Return the missing names whose period has not ended.

        Args:
            missing: all names that are missing now; the period of any other restarts when it is missing again.
            now: monotonic seconds.
        """
        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}
        return frozenset(name for name, since in self._missing_since.items() if now - since < self._period_s)
