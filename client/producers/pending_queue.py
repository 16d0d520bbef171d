"""A producer's pending entries, which were sent but not yet stored, in sending order.

Invariants: receipts arrive in this order, so a receipt can only be for the head. After a reconnection, all entries are
resent before any new one, with identical bytes except for a changed schema version.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ...errors import InvalidConfig, MagnetarError
from ...wire.message_id import MessageId
from ..checks import INT64_MAX, check_integer
from ..config import ProducerConfig

if TYPE_CHECKING:
    from .open_batch import OpenBatch


class SequenceIds:
    """The sequence ids assigned by a producer.

    Invariant: the ids increase; the broker's deduplication would drop other messages as duplicates.

    Attributes:
        producer_name: producer name, for errors.
        next: id of the next message, unless the application sets one.
        last: the highest assigned id, or -1.
    """

    __slots__ = ("last", "next", "producer_name")

    def __init__(self) -> None:
        self.producer_name = ""
        self.next = 0
        self.last = -1

    def assign(self, sequence_id: int | None, count: int) -> int:
        """Return the first of ``count`` sequence ids; the application may set it as ``sequence_id``.

        Raises:
            InvalidConfig: ``sequence_id`` is not a valid number, or does not increase.
        """
        first = self.next
        if sequence_id is not None:
            check_integer("sequence_id", sequence_id, 0, INT64_MAX - count)
            first = sequence_id
        if first <= self.last:
            raise InvalidConfig(
                f"invalid sequence_id {first}: producer {self.producer_name} has already used {self.last}"
            )
        self.last = first + count - 1
        self.next = first + count
        return first


def fail_all(futures: Iterable[Future[MessageId]], error: MagnetarError) -> None:
    """Fail all pending futures."""
    for future in futures:
        if not future.done():
            future.set_exception(error)


class Verdict(Enum):
    """The meaning of a receipt for the queue."""

    HEAD = "the oldest pending entry is stored"
    STALE = "an entry that has already left the queue, for example one that was sent twice"
    AHEAD = "an entry after the oldest pending one: the broker lost an entry, so all must be resent"


@dataclass(slots=True, eq=False)
class PendingSend:
    """One SEND.

    Attributes:
        sequence_id: sequence id of the first message.
        last_sequence_id: sequence id of the last message.
        head: frame up to the payload section.
        payload: payload section.
        num_messages: number of messages in the entry.
        created_s: time when the caller sent the first message, by the event loop's clock.
        future: future of the entry's id; None if each message has its own.
        futures: one future per message of a batch, if each message has its own.
        flushed: completes with the entry, for callers of `flush`.
    """

    sequence_id: int
    last_sequence_id: int
    head: bytes
    payload: bytes
    num_messages: int
    created_s: float
    future: Future[MessageId] | None = None
    futures: Sequence[Future[MessageId]] = ()
    flushed: Future[None] | None = None

    def complete(self, ledger_id: int, entry_id: int, partition: int) -> None:
        """Complete the futures with message ids."""
        future = self.future
        if future is not None:
            if not future.done():
                future.set_result(MessageId(ledger_id, entry_id, partition))
        else:
            size = len(self.futures)
            for index, one in enumerate(self.futures):
                if not one.done():
                    one.set_result(MessageId(ledger_id, entry_id, partition, index, size))
        if self.flushed is not None and not self.flushed.done():
            self.flushed.set_result(None)

    def fail(self, error: MagnetarError) -> None:
        """Fail the futures."""
        fail_all(self.futures if self.future is None else (self.future,), error)
        if self.flushed is not None and not self.flushed.done():
            self.flushed.set_exception(error)
            self.flushed.exception()  # marks it as retrieved, as flush() may be cancelled; waiters still receive it


class PendingQueue:
    """A first-in-first-out queue of `PendingSend`, counted in messages and bytes."""

    __slots__ = ("_sends", "bytes", "messages")

    def __init__(self) -> None:
        self._sends: deque[PendingSend] = deque()
        self.messages = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._sends)

    def __iter__(self) -> Iterator[PendingSend]:
        return iter(self._sends)

    @property
    def head(self) -> PendingSend | None:
        """The oldest entry."""
        return self._sends[0] if self._sends else None

    @property
    def tail(self) -> PendingSend | None:
        """The newest entry."""
        return self._sends[-1] if self._sends else None

    def append(self, send: PendingSend) -> None:
        """Append a SEND."""
        self._sends.append(send)
        self.messages += send.num_messages
        self.bytes += len(send.payload)

    def rewrite(self, send: PendingSend, head: bytes, payload: bytes) -> None:
        """Replace the bytes of a queued SEND."""
        self.bytes += len(payload) - len(send.payload)
        send.head, send.payload = head, payload

    def judge(self, sequence_id: int) -> Verdict:
        """Return the meaning of a receipt or send error with ``sequence_id``."""
        if not self._sends:
            return Verdict.STALE
        head = self._sends[0]
        if sequence_id < head.sequence_id:
            return Verdict.STALE
        # Receipts carry the first id of an entry, SEND_ERROR the last.
        return Verdict.HEAD if sequence_id <= head.last_sequence_id else Verdict.AHEAD

    def take(self, sequence_id: int) -> PendingSend | None:
        """Remove and return the oldest entry if ``sequence_id`` refers to it according to `judge`; else return None."""
        # Called for every message, so `judge` and `pop` are inlined.
        if not self._sends:
            return None
        head = self._sends[0]
        if not head.sequence_id <= sequence_id <= head.last_sequence_id:
            return None
        del self._sends[0]
        self.messages -= head.num_messages
        self.bytes -= len(head.payload)
        return head

    def pop(self) -> PendingSend:
        """Remove and return the oldest entry."""
        send = self._sends.popleft()
        self.messages -= send.num_messages
        self.bytes -= len(send.payload)
        return send

    def pop_all(self) -> list[PendingSend]:
        """Remove all entries and return them in order."""
        sends = list(self._sends)
        self._sends.clear()
        self.messages = 0
        self.bytes = 0
        return sends


class Admission:
    """The limits of one producer, and the callers that wait for room.

    Invariant: the number of admitted callers that have not run yet never exceeds the room.

    Attributes:
        waiting: waiting callers, in the order of their calls.
        admitted: callers that were admitted but have not run yet, so that their messages are not pending yet.
    """

    __slots__ = ("_batch", "_loop", "_max_bytes", "_max_messages", "_pending", "admitted", "waiting")

    def __init__(self, config: ProducerConfig, pending: PendingQueue, batch: OpenBatch):
        self._max_messages = config.max_pending_messages
        self._max_bytes = config.max_pending_bytes
        self._pending = pending
        self._batch = batch
        self._loop = asyncio.get_running_loop()
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.admitted = 0

    @property
    def room(self) -> int:
        """Number of additional messages that fit."""
        pending, batch = self._pending, self._batch
        if pending.bytes + batch.bytes >= self._max_bytes:
            return 0
        return self._max_messages - pending.messages - len(batch.payloads)

    @property
    def others(self) -> str:
        """Description of the producer's other limits, for errors; empty here."""
        return ""

    async def wait(self, check_open: Callable[[], None]) -> None:
        """Wait for room, in the order of the calls; called by `Producer.ready` when the queue is full.

        Cancellation: safe.

        Args:
            check_open: raises if the producer is closed or failed.
        """
        while True:
            waiter = self._loop.create_future()
            self.waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self.admitted -= 1
                    self.admit()  # give this caller's slot to the next one
                raise
            self.admitted -= 1
            check_open()
            if self.room > 0:
                return

    def admit(self) -> None:
        """Resume waiting callers while there is room, in the order of their calls."""
        while self.waiting and self.room > self.admitted:
            self._let_on(self.waiting.popleft())

    def admit_all(self) -> None:
        """Resume all callers after the producer was closed or failed."""
        while self.waiting:
            self._let_on(self.waiting.popleft())

    def _let_on(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_result(None)
            self.admitted += 1
