"""GracePeriod: tracks when names went missing, and which are still within their grace period.

The caller passes the time. It restarts the periods if names may be missing for reasons of its own, for example after it
became the leader or was disconnected. A leader therefore moves no instances after a broker restart, while all workers
reconnect one by one.
"""

from __future__ import annotations

from collections.abc import Iterable


class GracePeriod:
    """Tracks when names went missing."""

    def __init__(self, period_s: float) -> None:
        """Create a tracker with a period of ``period_s`` seconds from when a name is first found missing."""
        self._period_s = period_s
        self._missing_since: dict[str, float] = {}

    def restart(self) -> None:
        """Restart the periods of all names."""
        self._missing_since.clear()

    def forget(self, names: Iterable[str]) -> None:
        """Restart the periods of names that were present meanwhile, even if they are missing again."""
        for name in names:
            self._missing_since.pop(name, None)

    def is_over(self, name: str, now: float) -> bool:
        """Return whether the period of a name has ended, if it was missing at the last call of `granted`."""
        return now - self._missing_since.get(name, now) >= self._period_s

    def granted(self, missing: Iterable[str], now: float) -> frozenset[str]:
        """Return the missing names whose period has not ended.

        Args:
            missing: all names that are missing now. The period of any other name restarts when it next goes missing.
            now: current time in monotonic seconds.
        """
        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}
        return frozenset(name for name, since in self._missing_since.items() if now - since < self._period_s)
