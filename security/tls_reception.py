"""Receiving through TLS into one buffer of a thread, instead of into new memory for each record.

Design: for a plain `asyncio.Protocol` the TLS of asyncio and of uvloop allocates 256 KiB for each record, of which it
fills 16 KiB at most; that costs about as much as decrypting. An `asyncio.BufferedProtocol` brings the memory, and takes
all records that have come at once. One buffer is enough for all connections of a thread, as it is filled and emptied
within one call of the event loop; what is handed on is a copy, which may be kept.
"""

from __future__ import annotations

import asyncio
import threading

BUFFER_BYTES = 1 << 18
"""What event loops read at once, too."""
_ROOM_BYTES = 1 << 10
"""Event loops ask for a little more than they have."""
_of_thread = threading.local()


class TlsReception(asyncio.BufferedProtocol):
    """Stands between TLS and a protocol that takes ``data_received``; made on the thread of its event loop."""

    __slots__ = ("_buffer", "_protocol")

    def __init__(self, protocol: asyncio.Protocol) -> None:
        """Prepare to hand on everything to a protocol."""
        self._protocol = protocol
        try:
            self._buffer: memoryview = _of_thread.buffer
        except AttributeError:
            self._buffer = _of_thread.buffer = memoryview(bytearray(BUFFER_BYTES + _ROOM_BYTES))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`; so for all that follows."""
        self._protocol.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to write what has been decrypted; asyncio takes slices of it, which must be views."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on what was written there."""
        self._protocol.data_received(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool | None:
        """Hand on."""
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Hand on."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Hand on."""
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand on."""
        self._protocol.connection_lost(exc)
