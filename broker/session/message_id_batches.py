"""The message ids of one command, applied in batches: others get their turn of the loop between two of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...errors import ServiceNotReady
from ...wire.pulsar_api_pb2 import MessageIdData
from ..storage.journal.batch import Done

if TYPE_CHECKING:
    from ..topics.subscription import Subscription
    from .connection import Connection

IDS_PER_BATCH = 5_000
"""Message ids of one command that are applied before others get their turn of the loop. Clients send 1,000."""


def apply_in_batches(
    connection: Connection,
    subscription: Subscription,
    ids: Sequence[MessageIdData],
    apply: Callable[[Sequence[MessageIdData], Done | None], None],
    done: Done | None = None,
) -> None:
    """Apply the message ids of one command: at once if they are few, else one batch in each turn of the loop.

    Until the last one the connection is not read, so that its next commands follow, and no second such list waits.
    """
    if len(ids) <= IDS_PER_BATCH:
        apply(ids, done)
        return
    read_on = connection.hold_back()
    answers = _Answers(-(-len(ids) // IDS_PER_BATCH), done) if done is not None else None
    resets = subscription.resets

    async def work() -> None:
        try:
            for start in range(0, len(ids), IDS_PER_BATCH):
                if subscription.is_closed or subscription.resets != resets:
                    # What was sent before a seek says nothing about what comes after it.
                    if done is not None:
                        done(ServiceNotReady(f"Subscription {subscription.name} was closed or moved meanwhile"))
                    return
                apply(ids[start : start + IDS_PER_BATCH], answers)
                await asyncio.sleep(0)
        finally:
            read_on()

    connection.start(0, work())


class _Answers:
    """Passes on the answer to a command that is applied in batches: the first error, or that all went well."""

    def __init__(self, batches: int, done: Done):
        self._left = batches
        self._done = done
        self._error: Exception | None = None

    def __call__(self, error: Exception | None) -> None:
        self._error = self._error or error
        self._left -= 1
        if not self._left:
            self._done(self._error)
