"""Waiting for a condition on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

POLL_S = 0.05


async def holds(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until a condition holds; returns whether it does after so many seconds at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110  the condition cannot notify about changes
                await asyncio.sleep(POLL_S)
    return condition()
