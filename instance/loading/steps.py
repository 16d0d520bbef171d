"""Steps of loading an instance, as its status shows them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHOWN_AFTER_S = 5.0
"""An import that takes shorter is nothing to worry about, and an error in the status would be."""


class Loading:
    """The step of user code that is at hand; `step` is for the function's thread, `trouble` for any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing at hand.

        Args:
            clock: rising seconds.
        """
        self._clock = clock
        self._at_hand: tuple[str, float, int] | None = None

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Take note of a step for as long as it takes.

        Args:
            what: it is, such as ``importing module x``.
        """
        before, self._at_hand = self._at_hand, (what, self._clock(), threading.get_ident())
        try:
            yield
        finally:
            self._at_hand = before

    def trouble(self) -> str:
        """Return what takes so long, since when, and where it is; empty if nothing does."""
        at_hand = self._at_hand
        if at_hand is None:
            return ""
        what, since_s, thread = at_hand
        passed_s = self._clock() - since_s
        if passed_s < SHOWN_AFTER_S:
            return ""
        frame = sys._current_frames().get(thread)
        where = f"; now at line {frame.f_lineno} of {frame.f_code.co_filename}" if frame is not None else ""
        return f"{what} since {passed_s:.0f} s{where}"
