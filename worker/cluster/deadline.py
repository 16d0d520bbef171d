"""Deadline shared by all steps of one request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import TypeVar

from ...errors import ConnectionLost, OperationTimeout, RequestRefused
from ...tasks import Backoff, Retry

_PAUSE_S = 0.2
_AWAY = (ConnectionLost, OperationTimeout)
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Deadline:
    """When a request ends, and what has held it up so far."""

    def __init__(self, timeout_s: float) -> None:
        """Begin now."""
        self._timeout_s = timeout_s
        self._until = monotonic() + timeout_s
        self._reason = "the broker takes long"

    @property
    def remaining_s(self) -> float:
        """Seconds that are left."""
        return max(0.0, self._until - monotonic())

    @asynccontextmanager
    async def bound(self, outcome: str = "nothing was changed") -> AsyncIterator[None]:
        """End what runs inside when the time is over.

        Args:
            outcome: what is said to have been done by then.

        Raises:
            RequestRefused: 503, with what held it up.
        """
        try:
            async with asyncio.timeout(self.remaining_s):
                yield
        except TimeoutError:
            raise RequestRefused(
                503, f"{outcome} within {self._timeout_s:g} s: {self._reason}; repeat the request later"
            ) from None

    async def ask(self, question: Callable[[], Awaitable[_T]]) -> _T:
        """Return an answer of the broker, asking again while it is away; only inside `bound`. Cancellation: safe."""
        return await Retry(_AWAY, Backoff(_PAUSE_S, _PAUSE_S), on_failure=self._note).call(question)

    def _note(self, failure: Exception) -> None:
        self._reason = str(failure)
        _log.info("a request found no broker, trying again: %s", failure)
