"""What one connection writes: collected during a turn of the loop, it leaves in one write at the end of it.

Invariant: frames leave in the order in which they were put in, and receipts, which are made as late as possible,
before any frame that is put in after them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..topics.producer import Producer

FLUSH_BYTES = 128 * 1024
"""Answers of one turn that are handed to the transport at once, which knows whether the peer takes them."""
UNJOINED_BYTES = 64 * 1024
"""Parts of more than that on average are not copied into one: a large payload that many consumers get is there once."""


class Outbox:
    """The frames of one connection that have not been handed to its transport.

    Args:
        loop: the event loop whose turns count.
        max_bytes: limit of collected messages to consumers.
        on_answered: called with the number of entries that the receipts being written confirm.

    Attributes:
        bytes: size of the frames, without receipts.
        transport: their destination; None before the connection is made.
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
        """Put one frame, or a part of one, into the write at the end of this turn."""
        if self._is_closed:
            return
        self._add_receipts()
        self._flush_soon()
        self._frames.append(frame)
        self.bytes += len(frame)
        if self.bytes >= FLUSH_BYTES:
            self.flush()

    def write_many(self, parts: list[bytes], size: int) -> None:
        """Put the parts of many frames, ``size`` bytes in all, into the write; at once where they are many bytes."""
        if self._is_closed:
            return
        self._flush_soon()
        self._frames += parts
        self.bytes += size
        if self.bytes >= self._max_bytes:
            self.flush()

    def answer_later(self, producer: Producer) -> None:
        """Write a producer's receipts with whatever is written next, at the latest at the end of this turn."""
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
        """Write what was collected."""
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
        """Take nothing more; what was collected still leaves with `flush`."""
        self._is_closed = True

    def discard(self) -> None:
        """Take nothing more and forget what was collected: the peer is gone."""
        self._is_closed = True
        self._frames.clear()
        self._answering.clear()
