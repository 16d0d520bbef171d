"""Fair scheduling of connections: limits how long each may occupy the event loop, and resumes waiting ones in order.

A client may send hundreds of commands in one read, and some of them take milliseconds, such as listing a large
namespace. A connection handles commands for `SLICE_S`. The rest waits here behind those of other connections, while
the messages of all connections are processed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

SLICE_S = 0.005
"""Time for which a connection handles commands before yielding to others."""
TURN_S = 0.02
"""Time for which waiting connections are served within one event loop iteration."""


class Turns:
    """The waiting connections of a broker.

    Args:
        monotonic: clock in seconds that, unlike uvloop's, advances within an event loop iteration.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_planned = False

    def __repr__(self) -> str:
        return f"Turns(waiting={len(self._waiting)})"

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` in a later event loop iteration, after all earlier calls."""
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
