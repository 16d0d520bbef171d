"""How long to wait before the next try."""

from __future__ import annotations

from random import Random

_JITTER = 0.09
"""Up to this part of a wait is taken off, so that many clients do not come back in step."""


class Backoff:
    """Waits that double from ``initial_s`` to ``max_s``, each a little shortened, never below ``initial_s``."""

    __slots__ = ("_initial_s", "_max_s", "_next_s", "_rng")

    def __init__(self, initial_s: float, max_s: float, rng: Random):
        self._initial_s = initial_s
        self._max_s = max_s
        self._next_s = initial_s
        self._rng = rng

    def next_s(self) -> float:
        """Return the next wait in seconds."""
        wait_s = self._next_s
        self._next_s = min(wait_s * 2, self._max_s)
        return max(self._initial_s, wait_s * (1 - _JITTER * self._rng.random()))

    def reset(self) -> None:
        """Begin again with the shortest wait."""
        self._next_s = self._initial_s
