"""TLS reception into one buffer per thread, instead of a new buffer for each record.

Design: for a plain `asyncio.Protocol`, asyncio and uvloop allocate 256 KiB per TLS record, of which they fill at most
16 KiB; this costs about as much as decryption. An `asyncio.BufferedProtocol` supplies the buffer, and receives all
available records in one call. One buffer suffices for all connections of a thread, because it is filled and emptied
within one call of the event loop; the protocol receives a copy, which it may keep.
"""

from __future__ import annotations

import asyncio
import threading

BUFFER_BYTES = 1 << 18
"""Buffer size, which equals the read size of event loops."""
_ROOM_BYTES = 1 << 10
"""Extra space, because event loops request slightly more than their read size."""
_of_thread = threading.local()


class TlsReception(asyncio.BufferedProtocol):
    """Adapter between TLS and a protocol with ``data_received``; created on its event loop's thread."""

    __slots__ = ("_buffer", "_protocol")

    def __init__(self, protocol: asyncio.Protocol) -> None:
        """Create an adapter that forwards everything to a protocol."""
        self._protocol = protocol
        try:
            self._buffer: memoryview = _of_thread.buffer
        except AttributeError:
            self._buffer = _of_thread.buffer = memoryview(bytearray(BUFFER_BYTES + _ROOM_BYTES))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Forward to the protocol."""
        self._protocol.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for decrypted data; asyncio slices it, and slices must be views."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Forward a copy of the buffer's content."""
        self._protocol.data_received(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool | None:
        """Forward to the protocol."""
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Forward to the protocol."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Forward to the protocol."""
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward to the protocol."""
        self._protocol.connection_lost(exc)
