"""Frames that were read and have to wait, because their connection takes or gives no more for now."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from ...wire.frames import Frame, Run


class FrameQueue(Iterator[Frame | Run]):
    """An iterator over frames to which some can be given back, and more be added."""

    def __init__(self, frames: Iterable[Frame | Run]) -> None:
        self._frames = deque(frames)

    @classmethod
    def of(cls, frames: Iterator[Frame | Run]) -> FrameQueue:
        """Return what is left of an iterator; one that is a queue already is that queue."""
        return frames if isinstance(frames, FrameQueue) else cls(frames)

    def __next__(self) -> Frame | Run:
        """Return the first frame and take it off."""
        if not self._frames:
            raise StopIteration
        return self._frames.popleft()

    def give_back(self, frame: Frame | Run) -> None:
        """Put a frame before all others."""
        self._frames.appendleft(frame)

    def extend(self, frames: Iterable[Frame | Run]) -> None:
        """Add frames behind all others."""
        self._frames.extend(frames)
