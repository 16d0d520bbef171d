"""How many messages the broker may still send: flow control, counted in messages.

Design: the broker may send ``size`` messages ahead. As messages are handed to the application their permits are
collected, and returned in one FLOW once they are half of the queue: more often would cost a frame for few messages,
less often would let the stream run dry.
"""

from __future__ import annotations


class Permits:
    """The permits of one consumer on one connection.

    With ``size`` 0 nothing is sent ahead: `demand` asks for one message when a receive waits for it. An entry may hold
    more messages than were asked for; the broker counts them all, and the next demand makes up for that.

    Invariant: permits sent on a connection never exceed ``max(size, 1)`` plus the messages that were released.
    """

    __slots__ = ("_released", "_threshold", "size")

    def __init__(self, size: int):
        self.size = size
        self._threshold = max(1, size // 2)
        self._released = 0

    def restart(self) -> int:
        """Begin on a new connection; return the permits to send now, 0 if none."""
        self._released = 0 if self.size else 1
        return self.size

    def release(self, count: int) -> int:
        """Count ``count`` messages as gone from the queue; return the permits to send now, 0 if none."""
        released = self._released + count
        if released < self._threshold or not self.size:
            self._released = released
            return 0
        self._released = 0
        return released

    def demand(self) -> int:
        """Return the permits to send because a receive waits for a message; only with ``size`` 0 there are any."""
        if self.size:
            return 0
        released = self._released
        self._released = 0
        return released
