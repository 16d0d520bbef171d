"""Waiting with a timeout, settling futures safely, and calls from other threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


async def within(seconds: float, awaitable: Awaitable[object]) -> bool:
    """Wait for an awaitable for at most ``seconds``, cancelling it then, and return whether it ended in time."""
    try:
        async with asyncio.timeout(seconds):
            await awaitable
    except TimeoutError:
        return False
    return True


def settle(future: asyncio.Future[T], result: T | BaseException) -> None:
    """Set a future's result or exception unless it is already settled or cancelled."""
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


async def called_back(start: Callable[[Callable[[Exception | None], None]], object]) -> None:
    """Call ``start`` with a callback, wait for the callback, and raise the error passed to it, if any.

    Cancellation: the started operation continues.
    """
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    start(partial(settle, future))
    await future


def call_in(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: Any) -> None:
    """Run ``call`` on a loop, from any thread. Do nothing if the loop is closed."""
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise
