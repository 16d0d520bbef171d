"""Futures for what storage reports by callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def settle(future: asyncio.Future[None]) -> Callable[[Exception | None], None]:
    """Return a callback that ends ``future`` with what it is told; nobody needs to wait any more by then."""

    def done(error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
            future.exception()  # an error that nobody waits for any more has been reported by whoever made it

    return done
