"""Queue of frames that were read but must wait because their connection is paused."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from ...wire.frames import Frame, Run


class FrameQueue(Iterator[Frame | Run]):
    """An iterator over frames that also accepts frames at the front and at the end."""

    def __init__(self, frames: Iterable[Frame | Run]) -> None:
        self._frames = deque(frames)

    @classmethod
    def of(cls, frames: Iterator[Frame | Run]) -> FrameQueue:
        """Return the rest of an iterator as a queue. A queue is returned unchanged."""
        return frames if isinstance(frames, FrameQueue) else cls(frames)

    def __next__(self) -> Frame | Run:
        """Remove and return the first frame."""
        if not self._frames:
            raise StopIteration
        return self._frames.popleft()

    def give_back(self, frame: Frame | Run) -> None:
        """Return a frame to the front."""
        self._frames.appendleft(frame)

    def extend(self, frames: Iterable[Frame | Run]) -> None:
        """Append frames."""
        self._frames.extend(frames)
