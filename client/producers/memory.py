"""The memory limit of pending messages, shared by all producers of a client.

Design: separate classes for queue, open batch and admission are used if there is a limit, so that other producers do
not pay for it. The same bytes count as for the limits of a single producer: payloads, plus keys and properties while a
batch is open. A message is accepted while the sum is below the limit, so one message may exceed it.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable

from ...wire.message_id import MessageId
from ...wire.pulsar_api_pb2 import SingleMessageMetadata
from ..config import ProducerConfig
from .open_batch import OpenBatch
from .pending_queue import Admission, PendingQueue


class MemoryLimit:
    """Pending bytes of all producers of a client.

    Attributes:
        limit_bytes: approximate limit.
        used_bytes: current sum.
    """

    def __init__(self, limit_bytes: int):
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: dict[SharedAdmission, None] = {}  # in the order in which they started waiting
        self._loop = asyncio.get_running_loop()
        self._is_admitting = False

    def __repr__(self) -> str:
        return f"MemoryLimit({self.used_bytes} of {self.limit_bytes} bytes, waiting={len(self._waiting)})"

    def add(self, size: int) -> None:
        """Add pending bytes."""
        self.used_bytes += size

    def release(self, size: int) -> None:
        """Subtract bytes that are no longer pending, and resume producers that wait for room."""
        self.used_bytes -= size
        if self._waiting and not self._is_admitting and self.used_bytes < self.limit_bytes:
            self._is_admitting = True
            self._loop.call_soon(self._admit)

    def _admit(self) -> None:
        self._is_admitting = False
        for admission in list(self._waiting):
            admission.admit()

    def waits(self, admission: SharedAdmission, *, is_waiting: bool) -> None:
        """Record whether callers of a producer are waiting for room."""
        if is_waiting:
            self._waiting[admission] = None
        else:
            self._waiting.pop(admission, None)


class SharedBatch(OpenBatch):
    """An `OpenBatch` whose bytes count towards the client's limit."""

    __slots__ = ("_memory",)

    def __init__(self, max_messages: int, max_bytes: int, memory: MemoryLimit):
        super().__init__(max_messages, max_bytes)
        self._memory = memory

    def add(
        self, header: SingleMessageMetadata, payload: bytes, future: Future[MessageId], header_bytes: int = 0
    ) -> None:
        """Append a message; see `OpenBatch.add`."""
        super().add(header, payload, future, header_bytes)
        self._memory.add(len(payload) + header_bytes)

    def take_futures(self) -> list[Future[MessageId]]:
        """Empty the batch and return the futures of its messages."""
        size = self.bytes
        futures = super().take_futures()
        self._memory.release(size)
        return futures


class SharedAdmission(Admission):
    """An `Admission` that has no room while the client's limit is reached."""

    __slots__ = ("_memory",)

    def __init__(self, config: ProducerConfig, pending: PendingQueue, batch: OpenBatch, memory: MemoryLimit):
        super().__init__(config, pending, batch)
        self._memory = memory

    @property
    def room(self) -> int:
        """Number of additional messages that fit."""
        memory = self._memory
        return super().room if memory.used_bytes < memory.limit_bytes else 0

    @property
    def others(self) -> str:
        """Description of the producer's other limits, for errors."""
        memory = self._memory
        return (
            f"; all producers of the client have {memory.used_bytes} bytes pending,"
            f" the limit is memory_limit_bytes={memory.limit_bytes}"
        )

    async def wait(self, check_open: Callable[[], None]) -> None:
        """Wait for room; see `Admission.wait`.

        Cancellation: safe.
        """
        self._memory.waits(self, is_waiting=True)
        try:
            await super().wait(check_open)
        finally:
            if not self.waiting:
                self._memory.waits(self, is_waiting=False)
