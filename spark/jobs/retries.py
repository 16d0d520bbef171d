"""Retries of requests to a broker or a state store that is away for a moment, such as one that is restarted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ...errors import BrokerError, ConnectionLost, OperationTimeout, StateStoreUnavailable

RETRY_DEADLINE_S = 60.0
"""How long a server may be away, or hold the connection of a driver that is gone."""
PAUSE_S = 0.2
_T = TypeVar("_T")


def with_retries(request: Callable[[], _T], check: Callable[[], object] = lambda: None) -> _T:
    """Return what a request returns, repeating it for at most `RETRY_DEADLINE_S`.

    Args:
        request: repeated while it raises an error of a server that is away.
        check: called before each attempt; raises once the answer is not needed any more.

    Raises:
        Exception: what ``request`` raised at the deadline, or an error that repeating it cannot help.
    """
    deadline_s = time.monotonic() + RETRY_DEADLINE_S
    while True:
        check()
        try:
            return request()
        except (ConnectionLost, OperationTimeout, BrokerError, StateStoreUnavailable) as error:
            if time.monotonic() > deadline_s or getattr(error, "is_final", False):
                raise
            time.sleep(PAUSE_S)
