"""Locks by name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class NamedLocks:
    """Locks that come into being with their first holder and go with their last one."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, list[None]]] = {}

    def __repr__(self) -> str:
        return f"NamedLocks({sorted(self._locks)})"

    @contextlib.asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """Hold the lock of that name; others wait, first come first served.

        Cancellation: safe.
        """
        lock, users = self._locks.setdefault(name, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                del self._locks[name]
