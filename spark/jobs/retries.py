"""Retries of requests to a broker or a state store that is away for a moment, such as one that is restarted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...errors import BrokerError, ConnectionLost, OperationTimeout, StateStoreUnavailable
from ...tasks import Backoff, Retry

RETRY_DEADLINE_S = 60.0
"""How long a server may be away, or hold the connection of a driver that is gone."""
PAUSE_S = 0.2
_AWAY = (ConnectionLost, OperationTimeout, BrokerError, StateStoreUnavailable)
_T = TypeVar("_T")


def with_retries(request: Callable[[], _T], check: Callable[[], object] = lambda: None) -> _T:
    """Return what a request returns, repeating it for at most `RETRY_DEADLINE_S`.

    Args:
        request: repeated while it raises an error of a server that is away.
        check: called before each attempt; raises once the answer is not needed any more.

    Raises:
        Exception: what ``request`` raised at the deadline, or an error that repeating it cannot help.
    """

    def attempt() -> _T:
        check()
        return request()

    return Retry(_AWAY, Backoff(PAUSE_S, PAUSE_S), RETRY_DEADLINE_S).call_blocking(attempt)
