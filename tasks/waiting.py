"""Waits with a timeout, futures that may be settled already, and calls from other threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def within(seconds: float, awaitable: Awaitable[object]) -> bool:
    """Wait for an awaitable for at most ``seconds``, then cancel it; return whether it ended in time."""
    try:
        async with asyncio.timeout(seconds):
            await awaitable
    except TimeoutError:
        return False
    return True


def settle(future: asyncio.Future[T], result: T | BaseException) -> None:
    """Set a future's result or exception, unless it is done: cancelled, or already settled."""
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


def call_in(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: Any) -> None:
    """Run ``call`` on a loop, from any thread; do nothing if the loop is closed."""
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise
