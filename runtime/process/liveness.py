"""Liveness check: whether an unresponsive instance hangs, or only waits for a CPU."""

from __future__ import annotations

from collections.abc import Mapping

CHECKS_MAX = 3
"""Unanswered checks in a row, as in Pulsar's instances."""
PAUSE_S = 3.0
"""How much longer than its period a check may take, mainly to wait for the answer."""
SILENT_S = 1.0
"""Time without an answer, excluding waits for a CPU, after which the status reports it."""
BUSY_FACTOR = 10
"""Factor by which the limit is extended for a process that gets no CPU."""


class Liveness:
    """Counts the time in which an instance could have answered and did not.

    Attributes:
        silent_since_s: time of its last answer, or of its start.
    """

    def __init__(self, check_s: float, now_s: float) -> None:
        """Start with a healthy instance.

        Args:
            check_s: seconds between two checks.
            now_s: any monotonic clock, the same for all methods.
        """
        self.silent_since_s = now_s
        self._check_s = check_s
        self._missed_s: float | None = None
        self._waited_s: Mapping[int, float] = {}
        self._counted_s = 0.0
        self._busy_s = 0.0

    @property
    def silence_max_s(self) -> float:
        """Maximum time without an answer."""
        return CHECKS_MAX * self._check_s

    @property
    def is_hanging(self) -> bool:
        """Return whether it had enough time to answer."""
        return self._counted_s >= self.silence_max_s or self._busy_s >= self.silence_max_s * BUSY_FACTOR

    @property
    def is_silent(self) -> bool:
        """Return whether it could have answered a check but did not, and was not waiting for a CPU."""
        return self._counted_s >= min(SILENT_S, self.silence_max_s / 2)

    def seen(self, now_s: float) -> None:
        """Record an answer to a request other than a check."""
        self.silent_since_s = now_s

    def answered(self, now_s: float) -> None:
        """Record the answer to a check."""
        self.silent_since_s = now_s
        self._missed_s = None
        self._counted_s = self._busy_s = 0.0

    def missed(self, now_s: float, waited_s: Mapping[int, float]) -> None:
        """Record an unanswered check.

        Args:
            now_s: current time.
            waited_s: how long each thread has waited for a CPU so far.
        """
        if self._missed_s is not None:
            really_s = max(now_s - self._missed_s, 1e-9)
            held_up_s = max((waited_s[one] - self._waited_s.get(one, 0.0) for one in waited_s), default=0.0)
            # A long pause between two checks is the worker's own: it was frozen or blocked.
            passed_s = min(really_s, self._check_s + PAUSE_S)
            self._counted_s += passed_s * max(0.0, 1 - held_up_s / really_s)
            self._busy_s += passed_s
        self._missed_s, self._waited_s = now_s, waited_s

    def reason(self, now_s: float) -> str:
        """Return in one line that it does not answer, and the consequence."""
        return (
            f"the instance has not answered for {now_s - self.silent_since_s:.0f} s: the function may hold Python's"
            " interpreter or event loop, as a regular expression that backtracks for ever does, or its process is"
            " stopped; after"
            f" {self.silence_max_s:g} s without answers it is killed and started again (instanceLivenessCheckFreqMs)"
        )
