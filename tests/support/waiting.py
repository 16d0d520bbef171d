"""Wait for a condition with a deadline, the only kind of waiting in tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
TIMEOUT_S = 150.0
"""Long enough for a heavily loaded machine, and below the time limit of a test."""

POLL_S = 0.02


def wait_for(condition: Callable[[], T | None], what: str, timeout_s: float = TIMEOUT_S) -> T:
    """Return the first true value of `condition`; fail with `what` and the last value at the deadline.

    Exceptions of `condition` count as false: a starting server rejects connections.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        last: object
        try:
            value = condition()
            if value:
                return value
            last = value
        except Exception as exc:  # noqa: BLE001  the deadline below reports it
            last = exc
        if time.monotonic() > deadline:
            raise AssertionError(f"no {what} within {timeout_s:g} s; last: {last!r}")
        time.sleep(POLL_S)
