"""The memory limit for unsent bytes of slow peers, shared by all connections of a broker.

A peer is slow if it reads less than the broker writes; the unsent bytes of all slow peers are counted. The more slow
peers there are, the fewer unsent bytes each may have (`share_bytes`). Above the limit, memory is short:

* subscriptions read less at a time, and subscriptions with large messages wait until memory is available;
* connections whose peers read nothing for `STALLED_S` are closed.

Above twice the limit, connections are closed immediately, starting with the longest stalled one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

LEAST_SHARE_BYTES = 64 * 1024
"""Minimum share of a connection."""
SHORT_READ_BYTES = 64 * 1024
"""Maximum bytes per read while memory is short; subscriptions whose messages are larger on average wait."""
STALLED_S = 5.0
"""Time after which the connection of a peer that reads nothing is closed while memory is short."""
LOOK_S = 1.0
"""Interval of the check for stalled peers."""
SERVED_AT_ONCE = 4
"""Number of subscriptions resumed at a time after memory was short, since each may read a large message."""
SERVE_S = 0.02
SETTING = "maxMessagePublishBufferSizeInMB"


class Peer(Protocol):
    """A connection as seen by the delivery memory."""

    @property
    def unsent_bytes(self) -> int:
        """Number of bytes that the peer has not read yet."""

    def limit_unsent(self, share_bytes: int) -> None:
        """Stop writing to the connection's consumers above this number of unsent bytes."""

    def give_way(self, reason: str) -> None:
        """Close the connection immediately; ``reason`` is logged."""


@dataclass(slots=True)
class _Unsent:
    size: int
    since_s: float


class DeliveryMemory:
    """Accounts for the unsent bytes of slow peers, and enforces the limits.

    Args:
        limit_bytes: returns the limit for all connections; 0 or less for unlimited.
        most_bytes: maximum for a single connection (`write_buffer_bytes`).
        peers: returns all connections.
        time_s: clock in seconds; the running loop's clock if omitted.

    Attributes:
        is_short: whether the unsent bytes exceed the limit.
        unsent_bytes: unsent bytes of all slow peers, as of the last update.
        share_bytes: current limit for a single connection.
    """

    def __init__(
        self,
        limit_bytes: Callable[[], int],
        most_bytes: int,
        peers: Callable[[], Iterable[Peer]],
        time_s: Callable[[], float] | None = None,
    ) -> None:
        self.is_short = False
        self.unsent_bytes = 0
        self.share_bytes = most_bytes
        self._limit_bytes = limit_bytes
        self._most_bytes = most_bytes
        self._peers = peers
        self._time_s = time_s or (lambda: asyncio.get_running_loop().time())
        self._unsent: dict[Peer, _Unsent] = {}
        self._waiting: deque[Callable[[], None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._serving: asyncio.TimerHandle | None = None
        self._is_closing_planned = False

    def __repr__(self) -> str:
        return f"DeliveryMemory(unsent={self.unsent_bytes}, peers={len(self._unsent)}, waiting={len(self._waiting)})"

    def paused(self, peer: Peer) -> None:
        """Start counting the unsent bytes of a peer that reads less than the broker writes."""
        self.resumed(peer)
        size = peer.unsent_bytes
        self._unsent[peer] = _Unsent(size, self._time_s())
        self.unsent_bytes += size
        self._judge()

    def resumed(self, peer: Peer) -> None:
        """Stop counting the unsent bytes of a peer that has caught up or disconnected."""
        unsent = self._unsent.pop(peer, None)
        if unsent is not None:
            self.unsent_bytes -= unsent.size
            self._judge()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` once enough memory is available; callbacks are called in first-in, first-out order."""
        self._waiting.append(go_on)

    def _judge(self) -> None:
        """Apply the limits to the current unsent bytes."""
        limit = self._limit_bytes()
        self.is_short = 0 < limit < self.unsent_bytes
        loop = asyncio.get_running_loop()
        if self.is_short and self._timer is None:
            self._timer = loop.call_later(LOOK_S, self._look_again)
        if 0 < 2 * limit < self.unsent_bytes and not self._is_closing_planned:
            self._is_closing_planned = True
            loop.call_soon(self._close_some)
        if self._waiting and not self.is_short and self._serving is None:
            self._serving = loop.call_later(0, self._serve)
        share = limit // (2 << len(self._unsent).bit_length()) if limit > 0 else self._most_bytes
        share = min(max(share, LEAST_SHARE_BYTES), self._most_bytes)
        # Increase the share only in large steps, so that connections are rarely notified.
        if share < self.share_bytes or share >= 4 * self.share_bytes or (share > self.share_bytes and not self._unsent):
            self.share_bytes = share
            loop.call_soon(self._tell_share)

    def _tell_share(self) -> None:
        for peer in list(self._peers()):
            peer.limit_unsent(self.share_bytes)

    def _serve(self) -> None:
        self._serving = None
        for _ in range(min(SERVED_AT_ONCE, len(self._waiting))):
            if self.is_short:
                return
            self._waiting.popleft()()
        if self._waiting and not self.is_short:
            self._serving = asyncio.get_running_loop().call_later(SERVE_S, self._serve)

    def _look_again(self) -> None:
        self._timer = None
        self.look()

    def look(self) -> None:
        """Close stalled connections while memory is short; called every `LOOK_S`."""
        self._refresh()
        now_s = self._time_s()
        for peer, unsent in list(self._unsent.items()):
            if not self.is_short:
                break
            if now_s - unsent.since_s >= STALLED_S:
                self._close(peer, unsent, now_s)
        self._judge()

    def _close_some(self) -> None:
        """Close connections until the unsent bytes are at most twice the limit."""
        self._is_closing_planned = False
        self._refresh()
        now_s = self._time_s()
        limit = self._limit_bytes()
        oldest = sorted(self._unsent.items(), key=lambda item: (item[1].since_s, -item[1].size))
        for peer, unsent in oldest:
            if self.unsent_bytes <= 2 * limit or limit <= 0:
                break
            self._close(peer, unsent, now_s)

    def _close(self, peer: Peer, unsent: _Unsent, now_s: float) -> None:
        waited_s = now_s - unsent.since_s
        self.resumed(peer)
        peer.give_way(
            f"has read none of {unsent.size} pending bytes for {waited_s:.0f} s while memory is short ({SETTING})"
        )

    def _refresh(self) -> None:
        """Update the unsent bytes of all slow peers."""
        now_s = self._time_s()
        for peer, unsent in self._unsent.items():
            size = peer.unsent_bytes
            if size < unsent.size:
                unsent.since_s = now_s
            self.unsent_bytes += size - unsent.size
            unsent.size = size
        limit = self._limit_bytes()
        self.is_short = 0 < limit < self.unsent_bytes
