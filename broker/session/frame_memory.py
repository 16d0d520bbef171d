"""Memory for large incoming frames, shared by all connections of a broker.

A frame of `LARGE_BYTES` or more must reserve its whole size before the broker reads the rest of it. Until there is
room, its connection is not read. Connections get room in the order of their requests. Smaller frames need no
reservation, so that small requests proceed while large ones wait.

While connections wait, frames must make progress: a connection whose frame stalls, or is slower than `SLOWEST_BYTES_S`
on average, is closed, so that a client that never completes its frame cannot occupy the memory.

Rejected alternative: counting received bytes and pausing reads above a limit. Partly read frames would fill the memory,
and none of them could be completed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

LARGE_BYTES = 64 * 1024
"""Minimum size of frames and requests that need a reservation."""
STALLED_S = 5.0
"""Time that a frame may stall while others wait."""
SLOWEST_BYTES_S = 256 * 1024
"""Minimum average rate of a frame while others wait, not counting `STALLED_S`."""
LOOK_S = 1.0
"""Interval of these checks."""
SETTING = "maxMessagePublishBufferSizeInMB"


class FrameOwner(Protocol):
    """Interface of a connection for the frame memory."""

    is_reading: bool
    """Whether the socket is read."""

    @property
    def kept_bytes(self) -> int:
        """Bytes received of the incomplete frame."""

    def memory_granted(self) -> None:
        """Resume reading, because there is room for the frame."""

    def refuse_memory(self, reason: str) -> None:
        """Drop the incomplete frame, and close the connection."""


@dataclass(slots=True)
class _Frame:
    size: int
    began_s: float
    kept_bytes: int
    grew_s: float

    def fault(self, kept_bytes: int, now_s: float) -> str | None:
        """Record the received bytes, and return why the frame is too slow, or None."""
        if kept_bytes != self.kept_bytes:
            self.kept_bytes, self.grew_s = kept_bytes, now_s
        if now_s - self.grew_s >= STALLED_S:
            return f"stalled for {STALLED_S:g} s"
        if now_s - self.began_s >= STALLED_S + self.size / SLOWEST_BYTES_S:
            return f"slower than {SLOWEST_BYTES_S} bytes/s"
        return None


class FrameMemory:
    """Admission control for large frames.

    Args:
        limit_bytes: returns the limit; 0 or less means unlimited.
        time_s: clock; the running loop's clock if omitted.

    Attributes:
        used_bytes: number of reserved bytes.
    """

    def __init__(self, limit_bytes: Callable[[], int], time_s: Callable[[], float] | None = None) -> None:
        self.used_bytes = 0
        self._limit_bytes = limit_bytes
        self._time_s = time_s or (lambda: asyncio.get_running_loop().time())
        self._frames: dict[FrameOwner, _Frame] = {}
        self._waiting: dict[FrameOwner, int] = {}  # frame sizes, in request order
        self._kept: dict[FrameOwner, int] = {}  # bytes received before the connection stopped reading
        self._kept_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"FrameMemory(used={self.used_bytes}, frames={len(self._frames)}, waiting={len(self._waiting)})"

    def reserve(self, owner: FrameOwner, size: int) -> bool:
        """Reserve room for a connection's next frame, replacing its earlier reservation.

        Returns:
            Whether the connection may continue reading; if not, `FrameOwner.memory_granted` is called later.
        """
        self.release(owner)
        limit = self._limit_bytes()
        if limit <= 0:
            return True
        if not self._waiting and self._fits(size):
            self._begin(owner, size)
            return True
        kept_bytes = owner.kept_bytes
        if self._waiting and self._kept_bytes + kept_bytes > limit // 2:
            owner.refuse_memory(
                f"{len(self._waiting)} connections are already waiting for memory ({SETTING}): retry later"
            )
            return False
        self._waiting[owner] = size
        self._kept[owner] = kept_bytes
        self._kept_bytes += kept_bytes
        self._look_later()
        return False

    def release(self, owner: FrameOwner) -> None:
        """Release a connection's reservation, or remove it from the queue."""
        frame = self._frames.pop(owner, None)
        if frame is not None:
            self.used_bytes -= frame.size
        self._leave(owner)
        self._grant()

    def take(self, size: int) -> bool:
        """Reserve room for a large request in progress, and return whether there was room."""
        if self._limit_bytes() > 0 and not self._fits(size):
            return False
        self.used_bytes += size
        return True

    def give_back(self, size: int) -> None:
        """Release the room reserved for a request."""
        self.used_bytes -= size
        self._grant()

    def _fits(self, size: int) -> bool:
        """Return whether there is room. An oversized frame fits if it is the only one."""
        return not self.used_bytes or self.used_bytes + size <= self._limit_bytes()

    def _begin(self, owner: FrameOwner, size: int) -> None:
        now_s = self._time_s()
        self._frames[owner] = _Frame(size, now_s, owner.kept_bytes, now_s)
        self.used_bytes += size

    def _leave(self, owner: FrameOwner) -> int | None:
        size = self._waiting.pop(owner, None)
        self._kept_bytes -= self._kept.pop(owner, 0)
        return size

    def _grant(self) -> None:
        limit = self._limit_bytes()
        while self._waiting:
            owner, size = next(iter(self._waiting.items()))
            if limit > 0 and not self._fits(size):
                return
            self._leave(owner)
            self._begin(owner, size)
            owner.memory_granted()

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self.look()
        if self._waiting:
            self._look_later()

    def look(self) -> None:
        """Close connections whose frames stall while others wait. Called every `LOOK_S`."""
        self._grant()  # the limit may have been raised
        if not self._waiting:
            return
        now_s = self._time_s()
        for owner, frame in list(self._frames.items()):
            if not owner.is_reading:  # the broker itself is not reading it
                frame.began_s += max(now_s - frame.grew_s, 0.0)
                frame.grew_s = now_s
                continue
            fault = frame.fault(owner.kept_bytes, now_s)
            if fault is not None:
                reason = f"received {frame.kept_bytes} of {frame.size} bytes of a frame, {fault}, while others wait for"
                owner.refuse_memory(f"{reason} memory ({SETTING})")
