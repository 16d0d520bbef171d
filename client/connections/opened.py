"""The open objects of a client, which it closes when it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol
from weakref import WeakSet


class Closable(Protocol):
    """A producer, consumer or view."""

    async def close(self) -> None:
        """Close the object."""


class Openable(Closable, Protocol):
    """A producer or consumer of one topic."""

    async def open(self) -> None:
        """Create the object on the broker."""


class Opened:
    """Producers, consumers and views of one client.

    References are weak: attached objects are referenced by their connection, and unused detached objects do not need to
    be closed.
    """

    def __init__(self) -> None:
        self._closables: WeakSet[Closable] = WeakSet()

    def add(self, closables: Iterable[Closable]) -> None:
        """Register objects to close with the client."""
        self._closables.update(closables)

    async def open_all(self, parts: Sequence[Openable]) -> None:
        """Open all producers or consumers of a topic, or none: if one fails, all are closed.

        Cancellation: all are closed.
        """
        self.add(parts)
        try:
            results = await asyncio.gather(*(part.open() for part in parts), return_exceptions=True)
            errors = [result for result in results if isinstance(result, BaseException)]
            if errors:
                raise errors[0]
        except BaseException:
            await asyncio.gather(*(part.close() for part in parts), return_exceptions=True)
            raise

    async def close(self) -> None:
        """Close all objects, even if closing some of them fails.

        Cancellation: objects not closed yet lose their connections with the client.
        """
        await asyncio.gather(*(one.close() for one in list(self._closables)), return_exceptions=True)
