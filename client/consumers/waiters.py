"""Coroutines that wait for something to happen on the same event loop."""

from __future__ import annotations

import asyncio


class Waiters:
    """A set of coroutines that go on together; each looks for itself whether what it wants has come true."""

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
        """Let all who wait now go on."""
        futures, self._futures = self._futures, []
        for future in futures:
            if not future.done():
                future.set_result(None)
