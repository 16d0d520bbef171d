"""Fair scheduling of connections: how long one may occupy the event loop, and the order in which waiting ones resume.

A client may send hundreds of commands in one read, some of which take milliseconds, such as listing a large namespace.
A connection handles commands for `SLICE_S`; the rest waits here, behind those of other connections, while messages of
all connections pass.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

SLICE_S = 0.005
"""How long one connection handles commands before yielding to others."""
TURN_S = 0.02
"""How long waiting connections are served within one turn of the event loop."""


class Turns:
    """The waiting connections of a broker.

    Args:
        monotonic: a clock in seconds that advances within a turn, unlike uvloop's.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_planned = False

    def __repr__(self) -> str:
        return f"Turns(waiting={len(self._waiting)})"

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` in a later turn of the loop, after all earlier calls."""
        self._waiting.append(go_on)
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        self._is_planned = False
        end_s = self.monotonic() + TURN_S
        for _ in range(len(self._waiting)):
            go_on = self._waiting.popleft()
            go_on()
            if self.monotonic() >= end_s:
                break
        if self._waiting and not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._serve)
