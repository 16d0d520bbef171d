"""A queue of what is not stored yet that tells the client's memory limit, and counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..config import ProducerConfig
from ..statistics import ProducerCounts
from .memory import MemoryLimit, SharedAdmission, SharedBatch
from .open_batch import OpenBatch
from .pending_queue import Admission, PendingQueue, PendingSend


@dataclass(frozen=True, slots=True)
class Shared:
    """What the producers of a client have in common, where it has a limit for all of them or counts what they do.

    Attributes:
        memory: the limit, if there is one.
    """

    memory: MemoryLimit | None = None

    def parts(self, config: ProducerConfig, clock: Callable[[], float]) -> tuple[OpenBatch, PendingQueue, Admission]:
        """Return open batch, queue and admission of a producer.

        Args:
            config: its settings.
            clock: seconds of the event loop.
        """
        queue = ObservedQueue(self.memory, clock)
        if self.memory is None:
            batch = OpenBatch(config.batch_max_messages, config.batch_max_bytes)
            return batch, queue, Admission(config, queue, batch)
        shared = SharedBatch(config.batch_max_messages, config.batch_max_bytes, self.memory)
        return shared, queue, SharedAdmission(config, queue, shared, self.memory)


class ObservedQueue(PendingQueue):
    """A `PendingQueue` whose bytes count for the client's limit, or whose entries are counted, or both.

    Attributes:
        counts: what was counted.
    """

    __slots__ = ("_clock", "_memory", "counts")

    def __init__(self, memory: MemoryLimit | None, clock: Callable[[], float]) -> None:
        """Begin empty.

        Args:
            memory: limit of the client, if it has one.
            clock: seconds, as `PendingSend.created_s` has them.
        """
        super().__init__()
        self._memory = memory
        self._clock = clock
        self.counts = ProducerCounts()

    def append(self, send: PendingSend) -> None:
        """Add a SEND behind all others."""
        super().append(send)
        size = len(send.payload)
        self.counts.sent.add(send.num_messages, size)
        if self._memory is not None:
            self._memory.add(size)

    def rewrite(self, send: PendingSend, head: bytes, payload: bytes) -> None:
        """Give a SEND that is in the queue other bytes."""
        if self._memory is not None:
            self._memory.release(len(send.payload))
            self._memory.add(len(payload))
        super().rewrite(send, head, payload)

    def take(self, sequence_id: int) -> PendingSend | None:
        """Remove the oldest one if ``sequence_id`` is about it; as `PendingQueue.take`."""
        send = super().take(sequence_id)
        if send is not None:
            size = len(send.payload)
            self.counts.stored.add(send.num_messages, size)
            self.counts.took(self._clock() - send.created_s)
            if self._memory is not None:
                self._memory.release(size)
        return send

    def pop(self) -> PendingSend:
        """Remove the oldest one, which was refused, and return it."""
        send = super().pop()
        self.counts.failed += send.num_messages
        if self._memory is not None:
            self._memory.release(len(send.payload))
        return send

    def pop_all(self) -> list[PendingSend]:
        """Remove all, which are given up, and return them in order."""
        self.counts.failed += self.messages
        size = self.bytes
        sends = super().pop_all()
        if self._memory is not None:
            self._memory.release(size)
        return sends
