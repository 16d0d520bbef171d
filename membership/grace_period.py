"""GracePeriod: since when names are missing, and which of them are still tolerated.

Whoever asks passes the time, and begins anew when what was missing may have been missing for reasons of its own: a
leader that begins to lead or was cut off itself moves nothing after a restart of the broker, when all workers come back
one by one.
"""

from __future__ import annotations

from collections.abc import Iterable


class GracePeriod:
    """Since when each of several names has been missing."""

    def __init__(self, period_s: float) -> None:
        """Grant ``period_s`` seconds from the first time that a name is seen to be missing."""
        self._period_s = period_s
        self._missing_since: dict[str, float] = {}

    def restart(self) -> None:
        """Begin anew with all names."""
        self._missing_since.clear()

    def forget(self, names: Iterable[str]) -> None:
        """Begin anew with some names: they were there meanwhile, and may be missing again."""
        for name in names:
            self._missing_since.pop(name, None)

    def is_over(self, name: str, now: float) -> bool:
        """Return whether the period of a name has ended that was missing when somebody looked last."""
        return now - self._missing_since.get(name, now) >= self._period_s

    def granted(self, missing: Iterable[str], now: float) -> frozenset[str]:
        """Return those whose period has not ended.

        Args:
            missing: all names that are missing now; the period of any other begins anew when it is missing again.
            now: monotonic seconds.
        """
        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}
        return frozenset(name for name, since in self._missing_since.items() if now - since < self._period_s)
