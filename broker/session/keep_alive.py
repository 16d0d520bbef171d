"""Keep-alive of a connection: sends pings, and closes peers that are silent or read nothing.

Source: Pulsar binary protocol, section Keep-alive.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ...wire.pulsar_api_pb2 import CommandPing
from ...wire.session import State

if TYPE_CHECKING:
    from .connection import Connection

log = logging.getLogger(__name__)


class KeepAlive:
    """The keep-alive timer of one connection.

    Attributes:
        is_silent: whether nothing was received since the last tick.
        probe: future for the next sign of life; see `is_alive`.
    """

    def __init__(self, connection: Connection) -> None:
        self.is_silent = False
        self.probe: asyncio.Future[bool] | None = None
        self._connection = connection
        self._loop = connection.loop
        self._period_s = connection.config.keep_alive_s
        self._timer: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0

    def start(self) -> None:
        """Start the timer. The handshake must be complete by the first tick."""
        self._timer = self._loop.call_later(self._period_s, self._tick)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def tell_probe(self, is_alive: bool) -> None:
        """Resolve the pending probe of `is_alive`."""
        if self.probe is not None:
            self.probe.set_result(is_alive)
            self.probe = None

    def writing_paused(self) -> None:
        """Start watching the unsent bytes, because the peer now reads too slowly."""
        self._unsent_bytes = 0

    async def is_alive(self) -> bool:
        """Return whether the peer sends anything within the liveness timeout; abort its connection otherwise.

        A peer whose socket is not read, for example because its topic's publish rate is used up, counts as alive,
        because its data would not be received.

        Cancellation: safe.
        """
        connection = self._connection
        if connection.is_closed:
            return False
        if connection.is_writable and not connection.is_reading:
            return True
        if self.probe is None:
            self.probe = self._loop.create_future()
            connection.reply(CommandPing())
        timeout_s = connection.config.liveness_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(self.probe)
        except TimeoutError:
            if connection.is_writable and not connection.is_reading:
                return True
            log.info("closing %r: it did not respond within %s s", connection, timeout_s)
            connection.abort()
            return False

    def _tick(self) -> None:
        """Close the connection if the peer is silent, reads nothing or has not sent CONNECT; otherwise send a ping."""
        connection = self._connection
        # While the socket is not read, the peer's silence means nothing.
        if connection.state is State.CONNECTING or (self.is_silent and connection.is_reading):
            log.info("closing %r: keep-alive timeout", connection)
            connection.abort()
            return
        if not connection.is_writable:
            unsent_bytes = connection.unsent_bytes
            if 0 < self._unsent_bytes <= unsent_bytes:
                log.info("closing %r: it read nothing for %s s", connection, self._period_s)
                connection.abort()
                return
            self._unsent_bytes = unsent_bytes
        self.is_silent = True
        connection.reply(CommandPing())
        connection.closed_producers.expire(self._loop.time())
        self._timer = self._loop.call_later(self._period_s, self._tick)
