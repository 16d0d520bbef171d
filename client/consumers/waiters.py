"""Wait and wake-up of coroutines on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...errors import InvalidConfig, OperationTimeout
from ..checks import check_least
from .received import Message

M = TypeVar("M", bound=Message)


class Waiters:
    """Coroutines that are woken together; each checks its own condition."""

    __slots__ = ("_futures", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._futures: list[asyncio.Future[None]] = []

    def __bool__(self) -> bool:
        return bool(self._futures)

    async def wait(self) -> None:
        """Wait until the next `wake`.

        Cancellation: safe.
        """
        future = self._loop.create_future()
        self._futures.append(future)
        await future

    def wake(self) -> None:
        """Wake all waiting coroutines."""
        futures, self._futures = self._futures, []
        for future in futures:
            if not future.done():
                future.set_result(None)


def timeout_in_s(timeout_s: float | None, timeout_millis: float | None) -> float | None:
    """Return a timeout in seconds, specified in either unit; None means no timeout.

    Raises:
        InvalidConfig: both are set, or one is negative or not a number.
    """
    if timeout_millis is None:
        return timeout_s
    if timeout_s is not None:
        raise InvalidConfig(f"timeout_s={timeout_s!r} and timeout_millis={timeout_millis!r} are mutually exclusive")
    check_least("timeout_millis", timeout_millis, 0)
    return timeout_millis / 1000


async def next_message(
    topic: str, timeout_s: float | None, wait: Callable[[], Awaitable[None]], poll: Callable[[], M | None]
) -> M:
    """Call ``poll`` until it returns a message, awaiting ``wait`` between calls.

    Cancellation: safe, nothing is lost.

    Raises:
        OperationTimeout: no message arrived within ``timeout_s``.
    """
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                await wait()
                if (message := poll()) is not None:
                    return message
    except TimeoutError as error:
        raise OperationTimeout(f"no message received from {topic} within {timeout_s} s") from error
