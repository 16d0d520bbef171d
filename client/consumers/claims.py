"""Claims: acknowledges before processing, and tells which entries are still ours (at most once).

Design: an ordinary acknowledgement outlives its connection, a claim must not. Once the connection has ended, or another
consumer is the active one, the broker may have delivered the entries to another consumer, and would confirm the
acknowledgement all the same. So a claim counts only if its receipt comes on the connection that delivered the entries.
"""

from __future__ import annotations

import asyncio
from functools import partial

from ...errors import ClosedError, ConnectionLost
from ...wire.bulk import ack_frame
from ..connections.connection import Connection
from .ack_tracker import EntryKey


class Claims:
    """The claims of one consumer that wait for their receipt."""

    __slots__ = ("_consumer_id", "_topic", "_waiting")

    def __init__(self, consumer_id: int, topic: str):
        self._consumer_id = consumer_id
        self._topic = topic
        self._waiting: dict[asyncio.Future[None], asyncio.Future[object]] = {}

    def send(self, connection: Connection, positions: list[EntryKey]) -> asyncio.Future[None]:
        """Acknowledge entries and return the future of the receipt.

        It raises ConnectionLost once the entries may be another consumer's, and what the broker answers otherwise.
        """
        claim: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request_id = connection.next_request_id()
        ids = [(ledger_id, entry_id, ()) for ledger_id, entry_id in positions]
        frame = ack_frame(self._consumer_id, ids, request_id=request_id)
        answer = connection.request_by_frame(f"acknowledge {len(ids)} entries of {self._topic}", request_id, frame)
        self._waiting[claim] = answer
        answer.add_done_callback(partial(self._answered, claim))
        return claim

    def _answered(self, claim: asyncio.Future[None], answer: asyncio.Future[object]) -> None:
        error = ClosedError("cancelled") if answer.cancelled() else answer.exception()
        self._waiting.pop(claim, None)
        if claim.done():
            return
        if error is None:
            claim.set_result(None)
        else:
            claim.set_exception(error)

    def lose(self, why: str) -> None:
        """Fail the claims without a receipt: their entries may be another consumer's by now."""
        waiting, self._waiting = self._waiting, {}
        for claim, answer in waiting.items():
            if answer.done():
                self._answered(claim, answer)  # its receipt came before
            elif not claim.done():
                claim.set_exception(ConnectionLost(f"{self._topic}: {why}"))
