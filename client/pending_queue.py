"""What a producer has sent and the broker has not stored yet, in the order of sending.

Invariants: receipts come in this order, so a receipt can only be for the head. After a reconnection everything here is
sent again, byte by byte as before and before anything new.
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from ..errors import MagnetarError
from ..wire.message_id import MessageId


def fail_all(futures: Iterable[Future[MessageId]], error: MagnetarError) -> None:
    """Give the error to all who still wait."""
    for future in futures:
        if not future.done():
            future.set_exception(error)


class Verdict(Enum):
    """What a receipt means for the queue."""

    HEAD = "the oldest pending entry is stored"
    STALE = "an entry that is not pending any more, for example one that was sent twice"
    AHEAD = "an entry behind the oldest: the broker lost one, so everything must be sent again"


_HEAD, _STALE, _AHEAD = Verdict  # asking the class takes longer than the rest of `judge`


@dataclass(slots=True, eq=False)
class PendingSend:
    """One SEND.

    Attributes:
        sequence_id: of the first message.
        last_sequence_id: of the last message.
        head: frame up to the payload section.
        payload: payload section.
        num_messages: messages of the entry.
        created_s: when the first of them was handed to the producer, in seconds of the event loop's clock.
        futures: one per message, or one for all where ``batch_size`` is 0.
        batch_size: how many messages need ids of their own; 0 if the entry has one id.
        flushed: completes with the entry, for those who wait for everything up to it.
    """

    sequence_id: int
    last_sequence_id: int
    head: bytes
    payload: bytes
    num_messages: int
    created_s: float
    futures: list[Future[MessageId]]
    batch_size: int = 0
    flushed: Future[None] | None = None

    def complete(self, ledger_id: int, entry_id: int, partition: int) -> None:
        """Give every message its id."""
        size = self.batch_size
        if not size:
            (future,) = self.futures
            if not future.done():
                future.set_result(MessageId(ledger_id, entry_id, partition))
        else:
            for index, future in enumerate(self.futures):
                if not future.done():
                    future.set_result(MessageId(ledger_id, entry_id, partition, index, size))
        if self.flushed is not None and not self.flushed.done():
            self.flushed.set_result(None)

    def fail(self, error: MagnetarError) -> None:
        """Give every message the error."""
        fail_all(self.futures, error)
        if self.flushed is not None and not self.flushed.done():
            self.flushed.set_exception(error)
            self.flushed.exception()  # flush() may have been cancelled; whoever waits still gets it


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
        """The oldest one."""
        return self._sends[0] if self._sends else None

    @property
    def tail(self) -> PendingSend | None:
        """The newest one."""
        return self._sends[-1] if self._sends else None

    def append(self, send: PendingSend) -> None:
        """Add a SEND behind all others."""
        self._sends.append(send)
        self.messages += send.num_messages
        self.bytes += len(send.payload)

    def judge(self, sequence_id: int) -> Verdict:
        """Return what a receipt or refusal with ``sequence_id`` is about."""
        if not self._sends:
            return _STALE
        head = self._sends[0]
        if sequence_id < head.sequence_id:
            return _STALE
        # Brokers answer with the first id of an entry, in SEND_ERROR with the last.
        return _HEAD if sequence_id <= head.last_sequence_id else _AHEAD

    def pop(self) -> PendingSend:
        """Remove the oldest one and return it."""
        send = self._sends.popleft()
        self.messages -= send.num_messages
        self.bytes -= len(send.payload)
        return send

    def pop_all(self) -> list[PendingSend]:
        """Remove all and return them in order."""
        sends = list(self._sends)
        self._sends.clear()
        self.messages = 0
        self.bytes = 0
        return sends
