"""An input on a Failover subscription, where redelivery of one message also redelivers others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from ...client.config import ConsumerConfig
from ...client.consumers.received import ReceivedEntry
from ...wire.message_id import MessageId
from ..ports import Input
from ..unit import Position, position_of

KEEP_S = 5.0
POSITIONS_MAX = 50_000


class RecentAcks:
    """Recently acknowledged positions and their times, oldest first."""

    __slots__ = ("_times_s",)

    def __init__(self) -> None:
        """Create an empty set."""
        self._times_s: dict[Position, float] = {}

    def __len__(self) -> int:
        return len(self._times_s)

    def add(self, position: Position, now_s: float) -> None:
        """Add a position, and drop old or excess ones."""
        times = self._times_s
        times.pop(position, None)
        times[position] = now_s
        while True:
            oldest = next(iter(times))  # the loop ends, because the newest is never too old
            if len(times) <= POSITIONS_MAX and times[oldest] > now_s - KEEP_S:
                return
            del times[oldest]

    def has(self, position: Position, now_s: float) -> bool:
        """Return whether a position was acknowledged recently."""
        time_s = self._times_s.get(position)
        return time_s is not None and time_s > now_s - KEEP_S

    def clear(self) -> None:
        """Drop all positions."""
        self._times_s.clear()


class FailoverInput:
    """An `Input` that skips recently acknowledged entries and acknowledges them again.

    Attributes:
        opened: the wrapped input.
    """

    def __init__(self, opened: Input, recent: RecentAcks, clock: Callable[[], float]) -> None:
        """Wrap an input.

        Args:
            opened: input to wrap.
            recent: recent acknowledgements; cleared whenever another reader takes over the input.
            clock: monotonic clock, in seconds.
        """
        self.opened = opened
        self._recent = recent
        self._clock = clock
        # The bound methods themselves, to save a call.
        self.arrival = opened.arrival
        self.claim_entries = opened.claim_entries
        self.ack_entry = opened.ack_entry
        self.ack_batch_indexes = opened.ack_batch_indexes
        self.ack = opened.ack
        self.negative_ack = opened.negative_ack
        self.flush_acks = opened.flush_acks
        self.close = opened.close

    @classmethod
    async def open(
        cls, subscribe: Callable[[ConsumerConfig], Awaitable[Input]], config: ConsumerConfig, clock: Callable[[], float]
    ) -> FailoverInput:
        """Open an input through ``subscribe``, and raise its errors."""
        recent = RecentAcks()
        config = replace(config, on_active_change=lambda _: recent.clear())
        return cls(await subscribe(config), recent, clock)

    async def receive_entry(self) -> ReceivedEntry:
        """Return the next entry, waiting for it."""
        while self._was_acknowledged(entry := await self.opened.receive_entry()):
            pass
        return entry

    def poll_entry(self) -> ReceivedEntry | None:
        """Return the next entry, or None."""
        while (entry := self.opened.poll_entry()) is not None and self._was_acknowledged(entry):
            pass
        return entry

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Move the subscription; the next entry is the first one after ``target``."""
        self.forget()
        await self.opened.seek(target, inclusive=inclusive)

    def forget(self) -> None:
        """Forget recent acknowledgements, because a seek may redeliver their entries."""
        self._recent.clear()

    def _was_acknowledged(self, entry: ReceivedEntry) -> bool:
        if not self._recent.has(position_of(entry), self._clock()):
            return False
        self.opened.ack_entry(entry)
        return True

    def ack_entries(self, entries: Sequence[ReceivedEntry]) -> asyncio.Future[None]:
        """Acknowledge entries immediately."""
        acknowledged = self.opened.ack_entries(entries)
        now_s = self._clock()
        for entry in entries:
            self._recent.add(position_of(entry), now_s)
        return acknowledged
