"""Retries: which errors to retry, for how long, and with what backoff."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

_JITTER = 0.09
"""Maximum fraction by which jitter shortens a wait, so that clients do not retry in step."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Backoff:
    """Exponential backoff from ``initial_s`` to ``max_s``; never below ``initial_s``.

    Args:
        initial_s: first wait.
        max_s: longest wait; equal to ``initial_s`` for constant waits.
        rng: random numbers for jitter; None disables jitter.
        factor: growth factor from one wait to the next.
        jitter: maximum fraction by which a wait is shortened.
        settled_s: run time of the work after which `after` resets the backoff; by default ``max_s``.
    """

    __slots__ = ("_factor", "_initial_s", "_jitter", "_max_s", "_next_s", "_rng", "_settled_s")

    def __init__(
        self,
        initial_s: float,
        max_s: float,
        rng: Random | None = None,
        *,
        factor: float = 2.0,
        jitter: float = _JITTER,
        settled_s: float | None = None,
    ) -> None:
        self._initial_s = initial_s
        self._max_s = max_s
        self._next_s = initial_s
        self._rng = rng
        self._factor = factor
        self._jitter = jitter
        self._settled_s = max_s if settled_s is None else settled_s

    def next_s(self) -> float:
        """Return the next wait in seconds."""
        wait_s = self._next_s
        self._next_s = min(wait_s * self._factor, self._max_s)
        if self._rng is None:
            return wait_s
        return max(self._initial_s, wait_s * (1 - self._jitter * self._rng.random()))

    def after(self, ran_s: float) -> float:
        """Return the wait before restarting work that ran for ``ran_s`` seconds."""
        if ran_s >= self._settled_s:
            self.reset()
        return self.next_s()

    def reset(self) -> None:
        """Return to the shortest wait."""
        self._next_s = self._initial_s


def is_final(error: Exception) -> bool:
    """Return whether an error cannot be resolved by retrying the same request."""
    return bool(getattr(error, "is_final", False))


class Retry:
    """Retries a failing call, asynchronous or blocking."""

    def __init__(
        self,
        retried: tuple[type[Exception], ...],
        backoff: Backoff,
        within_s: float = math.inf,
        *,
        is_final: Callable[[Exception], bool] = is_final,
        on_failure: Callable[[Exception], object] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Create a retry policy.

        Args:
            retried: errors to retry.
            backoff: waits between attempts.
            within_s: maximum time from the first attempt to the start of the last.
            is_final: called with an error of ``retried``; if it returns True, the error is raised immediately.
            on_failure: called with each error that is retried.
            clock: returns monotonic seconds; by default the event loop's clock, or `time.monotonic`.
        """
        self._retried = retried
        self._backoff = backoff
        self._within_s = within_s
        self._is_final = is_final
        self._on_failure = on_failure
        self._clock = clock

    async def call(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Call ``ask`` until it succeeds, and return its result.

        Cancellation: safe if cancelling ``ask`` is.

        Raises:
            Exception: the error of the last attempt, or an error that is not retried.
        """
        clock = self._clock or asyncio.get_running_loop().time
        deadline_s = clock() + self._within_s
        while True:
            try:
                return await ask()
            except self._retried as error:
                wait_s = self._wait_s(error, deadline_s - clock())
                if wait_s is None:
                    raise
            await asyncio.sleep(wait_s)

    def call_blocking(self, ask: Callable[[], _T], wait: Callable[[float], object] = time.sleep) -> _T:
        """Blocking version of `call`, for use in a thread.

        Args:
            ask: the call to retry.
            wait: waits for the given seconds; an exception that it raises ends the retries.
        """
        clock = self._clock or time.monotonic
        deadline_s = clock() + self._within_s
        while True:
            try:
                return ask()
            except self._retried as error:
                wait_s = self._wait_s(error, deadline_s - clock())
                if wait_s is None:
                    raise
            wait(wait_s)

    def _wait_s(self, error: Exception, remaining_s: float) -> float | None:
        """Return the wait before the next attempt, or None after the last attempt."""
        if remaining_s <= 0 or self._is_final(error):
            return None
        if self._on_failure is not None:
            self._on_failure(error)
        # A last attempt is made at the end of the time limit, even if the wait would have been longer.
        wait_s = min(self._backoff.next_s(), remaining_s)
        _log.debug("attempt failed; retrying in %.1f s: %s", wait_s, error)
        return wait_s
