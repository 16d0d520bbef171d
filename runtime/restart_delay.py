"""How long to wait before an instance is started again."""

from __future__ import annotations

FIRST_S = 0.1  # a killed process is back within 2 s, up to four times in a row
LONGEST_S = 30.0
HEALTHY_S = 10.0


class RestartDelay:
    """Doubles with each end of an instance; begins anew after one that ran for `HEALTHY_S`."""

    def __init__(self) -> None:
        """Begin with the shortest."""
        self._next_s = FIRST_S

    def after(self, ran_s: float) -> float:
        """Return the wait after an instance that ran for ``ran_s`` seconds."""
        if ran_s >= HEALTHY_S:
            self._next_s = FIRST_S
        delay_s = self._next_s
        self._next_s = min(delay_s * 2, LONGEST_S)
        return delay_s
