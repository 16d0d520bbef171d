"""Liveness checks: distinguish an instance that hangs from one that only waits for a CPU."""

from __future__ import annotations

from collections.abc import Mapping

CHECKS_MAX = 3
"""Maximum number of consecutive failed checks, as in Pulsar's instances."""
PAUSE_S = 3.0
"""How much longer than its period a check may take, mainly waiting for the response, in seconds."""
SILENT_S = 1.0
"""Time without a response, excluding waits for a CPU, after which the status reports it, in seconds."""
BUSY_FACTOR = 10
"""Factor by which the limit is extended for a process that is not scheduled on a CPU."""


class Liveness:
    """Tracks how long an instance could have responded but did not.

    Attributes:
        silent_since_s: time of its last response, or of its start.
    """

    def __init__(self, check_s: float, now_s: float) -> None:
        """Create a tracker for a healthy instance.

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
        """Maximum time without a response, in seconds."""
        return CHECKS_MAX * self._check_s

    @property
    def is_hanging(self) -> bool:
        """Return whether the instance hangs: it had enough time to respond."""
        return self._counted_s >= self.silence_max_s or self._busy_s >= self.silence_max_s * BUSY_FACTOR

    @property
    def is_silent(self) -> bool:
        """Return whether the instance failed a check without having waited for a CPU."""
        return self._counted_s >= min(SILENT_S, self.silence_max_s / 2)

    def seen(self, now_s: float) -> None:
        """Record a response to a request other than a check."""
        self.silent_since_s = now_s

    def answered(self, now_s: float) -> None:
        """Record the response to a check."""
        self.silent_since_s = now_s
        self._missed_s = None
        self._counted_s = self._busy_s = 0.0

    def missed(self, now_s: float, waited_s: Mapping[int, float]) -> None:
        """Record a failed check.

        Args:
            now_s: current time.
            waited_s: how long each thread has waited for a CPU so far.
        """
        if self._missed_s is not None:
            really_s = max(now_s - self._missed_s, 1e-9)
            held_up_s = max((waited_s[one] - self._waited_s.get(one, 0.0) for one in waited_s), default=0.0)
            # A long pause between two checks means that the worker was frozen or blocked.
            passed_s = min(really_s, self._check_s + PAUSE_S)
            self._counted_s += passed_s * max(0.0, 1 - held_up_s / really_s)
            self._busy_s += passed_s
        self._missed_s, self._waited_s = now_s, waited_s

    def reason(self, now_s: float) -> str:
        """Describe in one line that the instance does not respond, and the consequence."""
        return (
            f"the instance has not responded for {now_s - self.silent_since_s:.0f} s: the function may block the"
            " interpreter or event loop, for example with an endlessly backtracking regular expression, or its"
            f" process is stopped; it will be killed and restarted after {self.silence_max_s:g} s without a response"
            " (instanceLivenessCheckFreqMs)"
        )
