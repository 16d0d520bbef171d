"""Liveness check: whether an instance that does not answer hangs, or only waits for a processor."""

from __future__ import annotations

from collections.abc import Mapping

CHECKS_MAX = 3
"""As many checks in a row may pass without an answer; Pulsar's instances allow their worker the same."""
PAUSE_S = 3.0
"""What a check may take longer than its period, above all to wait for the answer."""
SILENT_S = 1.0
"""Time without an answer, waiting for a processor not counted, from which on status says so."""
BUSY_FACTOR = 10
"""A process that gets no processor has so many times as long."""


class Liveness:
    """Counts the time in which an instance could have answered and did not.

    Attributes:
        silent_since_s: when it answered last, or began.
    """

    def __init__(self, check_s: float, now_s: float) -> None:
        """Begin with an instance that is all right.

        Args:
            check_s: seconds between two checks.
            now_s: any rising clock, the same for all methods.
        """
        self.silent_since_s = now_s
        self._check_s = check_s
        self._missed_s: float | None = None
        self._waited_s: Mapping[int, float] = {}
        self._counted_s = 0.0
        self._busy_s = 0.0

    @property
    def silence_max_s(self) -> float:
        """Longest time without an answer."""
        return CHECKS_MAX * self._check_s

    @property
    def is_hanging(self) -> bool:
        """Return whether it had its chance."""
        return self._counted_s >= self.silence_max_s or self._busy_s >= self.silence_max_s * BUSY_FACTOR

    @property
    def is_silent(self) -> bool:
        """Return whether it could have answered a check, and did not, rather than waited for a processor."""
        return self._counted_s >= min(SILENT_S, self.silence_max_s / 2)

    def seen(self, now_s: float) -> None:
        """Record an answer to a request other than a check."""
        self.silent_since_s = now_s

    def answered(self, now_s: float) -> None:
        """Take the answer to a check."""
        self.silent_since_s = now_s
        self._missed_s = None
        self._counted_s = self._busy_s = 0.0

    def missed(self, now_s: float, waited_s: Mapping[int, float]) -> None:
        """Take a check without an answer.

        Args:
            now_s: the time.
            waited_s: for how long each thread has waited for a processor so far.
        """
        if self._missed_s is not None:
            really_s = max(now_s - self._missed_s, 1e-9)
            held_up_s = max((waited_s[one] - self._waited_s.get(one, 0.0) for one in waited_s), default=0.0)
            # A long pause between two checks is one of the worker's: it was frozen or held up itself.
            passed_s = min(really_s, self._check_s + PAUSE_S)
            self._counted_s += passed_s * max(0.0, 1 - held_up_s / really_s)
            self._busy_s += passed_s
        self._missed_s, self._waited_s = now_s, waited_s

    def reason(self, now_s: float) -> str:
        """Return in one line that it does not answer, and what follows from that."""
        return (
            f"the instance has not answered for {now_s - self.silent_since_s:.0f} s: the function may hold Python's"
            " interpreter or event loop, as a regular expression that backtracks for ever does, or its process is"
            " stopped; after"
            f" {self.silence_max_s:g} s without answers it is killed and started again (instanceLivenessCheckFreqMs)"
        )
