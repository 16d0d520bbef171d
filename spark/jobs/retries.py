"""Waiting for a broker or a state store that is away for a moment, such as one that is started again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ...errors import BrokerError, ConnectionLost, OperationTimeout, StateStoreUnavailable

PATIENCE_S = 60.0
"""How long a server may be away, or hold the connection of a driver that is gone."""
PAUSE_S = 0.2
_T = TypeVar("_T")


def patiently(question: Callable[[], _T], check: Callable[[], object] = lambda: None) -> _T:
    """Return what servers answer, asking again for `PATIENCE_S` at most.

    Args:
        question: asked until it does not raise what a server that is away lets it raise.
        check: called before each attempt; raises once nobody wants the answer any more.

    Raises:
        Exception: what ``question`` raised the last time, or what cannot be helped by asking again.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        check()
        try:
            return question()
        except (ConnectionLost, OperationTimeout, BrokerError, StateStoreUnavailable) as error:
            if time.monotonic() > deadline_s or getattr(error, "is_final", False):
                raise
            time.sleep(PAUSE_S)
