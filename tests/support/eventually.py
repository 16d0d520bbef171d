"""Wait for a condition on an event loop, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.support.waiting import TIMEOUT_S

T = TypeVar("T")
POLL_S = 0.02


async def eventually(condition: Callable[[], Awaitable[T | None]], what: str, timeout_s: float = TIMEOUT_S) -> T:
    """Return the first true value of `condition`; fail with `what` and the last value at the deadline."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = await condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"no {what} within {timeout_s:g} s; last: {value!r}"
        await asyncio.sleep(POLL_S)


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = TIMEOUT_S) -> None:
    """Wait until a condition without a value holds."""
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
