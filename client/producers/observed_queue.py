"""A pending queue that updates the client's memory limit and entry counters."""

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
    """Parts shared by a client's producers: the memory limit and statistics, if enabled.

    Attributes:
        memory: the memory limit, or None.
    """

    memory: MemoryLimit | None = None

    def parts(self, config: ProducerConfig, clock: Callable[[], float]) -> tuple[OpenBatch, PendingQueue, Admission]:
        """Return the open batch, queue and admission of a producer.

        Args:
            config: the producer's settings.
            clock: the event loop's clock, in seconds.
        """
        queue = ObservedQueue(self.memory, clock)
        if self.memory is None:
            batch = OpenBatch(config.batch_max_messages, config.batch_max_bytes)
            return batch, queue, Admission(config, queue, batch)
        shared = SharedBatch(config.batch_max_messages, config.batch_max_bytes, self.memory)
        return shared, queue, SharedAdmission(config, queue, shared, self.memory)


class ObservedQueue(PendingQueue):
    """A `PendingQueue` with statistics, or whose bytes count towards the client's limit, or both.

    Attributes:
        counts: the counters.
    """

    __slots__ = ("_clock", "_memory", "counts")

    def __init__(self, memory: MemoryLimit | None, clock: Callable[[], float]) -> None:
        """Create an empty queue.

        Args:
            memory: the client's limit, or None.
            clock: the clock of `PendingSend.created_s`, in seconds.
        """
        super().__init__()
        self._memory = memory
        self._clock = clock
        self.counts = ProducerCounts()

    def append(self, send: PendingSend) -> None:
        """Append a SEND."""
        super().append(send)
        size = len(send.payload)
        self.counts.sent.add(send.num_messages, size)
        if self._memory is not None:
            self._memory.add(size)

    def rewrite(self, send: PendingSend, head: bytes, payload: bytes) -> None:
        """Replace the bytes of a queued SEND."""
        if self._memory is not None:
            self._memory.release(len(send.payload))
            self._memory.add(len(payload))
        super().rewrite(send, head, payload)

    def take(self, sequence_id: int) -> PendingSend | None:
        """Remove the oldest entry if ``sequence_id`` refers to it; see `PendingQueue.take`."""
        send = super().take(sequence_id)
        if send is not None:
            size = len(send.payload)
            self.counts.stored.add(send.num_messages, size)
            self.counts.took(self._clock() - send.created_s)
            if self._memory is not None:
                self._memory.release(size)
        return send

    def pop(self) -> PendingSend:
        """Remove and return the oldest entry, which was rejected."""
        send = super().pop()
        self.counts.failed += send.num_messages
        if self._memory is not None:
            self._memory.release(len(send.payload))
        return send

    def pop_all(self) -> list[PendingSend]:
        """Remove all entries, which have failed, and return them in order."""
        self.counts.failed += self.messages
        size = self.bytes
        sends = super().pop_all()
        if self._memory is not None:
            self._memory.release(size)
        return sends
