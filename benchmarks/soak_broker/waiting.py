"""Waiting for a condition on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

POLL_S = 0.05


async def holds(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until a condition holds or the timeout expires, and return whether it holds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110  the condition cannot notify of changes
                await asyncio.sleep(POLL_S)
    return condition()
