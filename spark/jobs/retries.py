"""Retries of requests to a broker or state store that is briefly unavailable, for example during a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...errors import BrokerError, ConnectionLost, OperationTimeout, StateStoreUnavailable
from ...tasks import Backoff, Retry

RETRY_DEADLINE_S = 60.0
"""Time during which a server may be unavailable or keep the connection of a dead driver."""
PAUSE_S = 0.2
_AWAY = (ConnectionLost, OperationTimeout, BrokerError, StateStoreUnavailable)
_T = TypeVar("_T")


def with_retries(request: Callable[[], _T], check: Callable[[], object] = lambda: None) -> _T:
    """Return the result of a request, retrying it for at most `RETRY_DEADLINE_S`.

    Args:
        request: retried while it raises an error that indicates an unavailable server.
        check: called before each attempt; raises to stop retrying.

    Raises:
        Exception: the last error of ``request`` at the deadline, or an error that is not retried.
    """

    def attempt() -> _T:
        check()
        return request()

    return Retry(_AWAY, Backoff(PAUSE_S, PAUSE_S), RETRY_DEADLINE_S).call_blocking(attempt)
