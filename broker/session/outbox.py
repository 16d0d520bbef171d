"""Output of a connection, collected during an event loop iteration and sent in one write at its end.

Invariant: frames are sent in the order in which they were added. Receipts, which are built as late as possible, are
sent before any frame that is added after them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..topics.producer import Producer

FLUSH_BYTES = 128 * 1024
"""Size at which responses are flushed immediately, so that the transport can detect a slow peer."""
UNJOINED_BYTES = 64 * 1024
"""Average part size above which parts are not joined, to avoid copying a large payload for many consumers."""


class Outbox:
    """Frames of a connection that have not been passed to its transport.

    Args:
        loop: event loop whose iterations are used.
        max_bytes: limit for collected messages to consumers.
        on_answered: called with the number of entries confirmed by the receipts being written.

    Attributes:
        bytes: total size of the frames, without receipts.
        transport: destination of the frames; None before the connection is made.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, max_bytes: int, on_answered: Callable[[int], None]) -> None:
        self.bytes = 0
        self.transport: asyncio.Transport | None = None
        self._loop = loop
        self._max_bytes = max_bytes
        self._on_answered = on_answered
        self._frames: list[bytes] = []
        self._answering: list[Producer] = []
        self._is_planned = False
        self._is_closed = False

    def write(self, frame: bytes) -> None:
        """Add a frame, or a part of one, to the write at the end of this iteration."""
        if self._is_closed:
            return
        self._add_receipts()
        self._flush_soon()
        self._frames.append(frame)
        self.bytes += len(frame)
        if self.bytes >= FLUSH_BYTES:
            self.flush()

    def write_many(self, parts: list[bytes], size: int) -> None:
        """Add the parts of many frames, ``size`` bytes in total. Above the limit they are written immediately."""
        if self._is_closed:
            return
        self._flush_soon()
        self._frames += parts
        self.bytes += size
        if self.bytes >= self._max_bytes:
            self.flush()

    def answer_later(self, producer: Producer) -> None:
        """Send a producer's receipts with the next write, no later than the end of this iteration."""
        if not self._is_closed:
            self._answering.append(producer)
            self._flush_soon()

    def _add_receipts(self) -> None:
        if self._answering:
            answered = 0
            for producer in self._answering:
                frames, entries = producer.take_receipts()
                self._frames.append(frames)
                answered += entries
            self._answering.clear()
            self._on_answered(answered)

    def _flush_soon(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._flush_planned)

    def _flush_planned(self) -> None:
        self._is_planned = False
        self.flush()

    def flush(self) -> None:
        """Write the collected frames."""
        self._add_receipts()
        frames = self._frames
        transport = self.transport
        if frames and transport is not None and not transport.is_closing():
            if self.bytes > len(frames) * UNJOINED_BYTES:
                for frame in frames:
                    transport.write(frame)
            else:
                transport.write(b"".join(frames) if len(frames) > 1 else frames[0])
        frames.clear()
        self.bytes = 0

    def close(self) -> None:
        """Accept no more frames. Collected frames are still sent by `flush`."""
        self._is_closed = True

    def discard(self) -> None:
        """Accept no more frames and drop the collected ones, because the peer is disconnected."""
        self._is_closed = True
        self._frames.clear()
        self._answering.clear()
