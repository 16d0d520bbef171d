"""Frames of the binary protocol: bytes to commands and back, without I/O.

Design: every frame is ``[u32 total][u32 command size][BaseCommand]`` and, for SEND and MESSAGE, a payload section
that fills the rest. The decoder is fed whatever the socket gave and returns the frames that are complete. A payload
is copied once, out of the receive buffer: entries are kept (journal, queues) far longer than the buffer they came in,
and a slice that pins a 256 KiB buffer for a 100-byte entry would cost more than the copy.

Source: Pulsar binary protocol, section Framing.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from google.protobuf.message import DecodeError

from ..errors import FrameTooLarge, ProtocolError
from .pulsar_api_pb2 import BaseCommand

DEFAULT_MAX_MESSAGE_BYTES = 5 * 1024 * 1024
"""Largest message of a broker with default settings, in bytes."""

FRAME_PADDING_BYTES = 10 * 1024
"""What a frame may hold beyond the largest message: command and metadata."""

_U32 = Struct(">I")
_SIZES = Struct(">II")
_parse_command = BaseCommand.FromString
_new_frame = tuple.__new__  # half the time of calling the class
# The parser does not look for missing required fields, and asking takes longer than parsing. In these commands, which
# come by the thousand, a missing field reads as 0 and meets the same answer as a wrong one.
_BURSTS = frozenset(
    (BaseCommand.SEND, BaseCommand.SEND_RECEIPT, BaseCommand.MESSAGE, BaseCommand.ACK, BaseCommand.FLOW)
)


class Frame(NamedTuple):
    """One frame: its command, and the payload section after it (``b""`` if there is none)."""

    command: BaseCommand
    payload: bytes


class FrameDecoder:
    """Turns a byte stream into frames.

    Invariant: what is kept between two calls is less than one frame, so never more than ``max_frame_bytes`` plus the
    last read.
    """

    __slots__ = ("_kept", "_wanted_bytes", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_MESSAGE_BYTES + FRAME_PADDING_BYTES):
        self.max_frame_bytes = max_frame_bytes
        self._kept = bytearray()
        # Length that `_kept` must reach before a frame can be complete: spares parsing on every piece of a big frame.
        self._wanted_bytes = 4

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the incomplete frame at the end of the stream so far."""
        return len(self._kept)

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that ``data`` completes, in order.

        Args:
            data: received bytes, any length; not kept.

        Raises:
            FrameTooLarge: a frame announces more than ``max_frame_bytes``; close the connection.
            ProtocolError: the sizes contradict each other or the command cannot be parsed; close the connection.
        """
        kept = self._kept
        if kept:
            kept += data
            if len(kept) < self._wanted_bytes:
                return []
            data = bytes(kept)
        frames: list[Frame] = []
        size = len(data)
        start = 0
        self._wanted_bytes = 4
        while size - start >= 4:
            total = _U32.unpack_from(data, start)[0]
            if total > self.max_frame_bytes:
                raise _refused(data[start : start + 4], total, self.max_frame_bytes)
            end = start + 4 + total
            if end > size:
                self._wanted_bytes = 4 + total
                break
            frames.append(_decode(data, start, end))
            start = end
        if kept:
            kept.clear()
        if start < size:
            kept += memoryview(data)[start:] if start else data
        return frames


_HTTP = (b"HTTP", b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI")
_TLS = b"\x16\x03"


def _refused(head: bytes, total: int, max_frame_bytes: int) -> ProtocolError:
    """Return the error for a size beyond the limit; a port that is another's is the usual cause."""
    foreign = "HTTP" if head in _HTTP else "TLS" if head.startswith(_TLS) else ""
    if foreign:
        return ProtocolError(f"the other side speaks {foreign}, not Pulsar's binary protocol; correct scheme or port")
    return FrameTooLarge(f"frame of {total} bytes exceeds max_frame_bytes={max_frame_bytes}")


def _decode(data: bytes, start: int, end: int) -> Frame:
    if end - start < 8:
        raise ProtocolError(f"frame of {end - start - 4} bytes has no room for a command size of 4 bytes")
    command_end = start + 8 + _U32.unpack_from(data, start + 4)[0]
    if command_end > end:
        raise ProtocolError(f"command of {command_end - start - 8} bytes exceeds its frame of {end - start - 4} bytes")
    try:
        command = _parse_command(data[start + 8 : command_end])
    except DecodeError as error:
        raise ProtocolError(f"command of {command_end - start - 8} bytes cannot be parsed: {error}") from error
    if command.type not in _BURSTS and not command.IsInitialized():
        raise ProtocolError(
            f"command {command.type} of {command_end - start - 8} bytes cannot be parsed: it lacks a required field"
        )
    return _new_frame(Frame, (command, data[command_end:end]))


def encode_frame(command: BaseCommand, payload: bytes = b"") -> bytes:
    """Return a whole frame; ``payload`` is a payload section as made by `payload.seal`."""
    body = command.SerializeToString()
    size = len(body)
    return _SIZES.pack(4 + size + len(payload), size) + body + payload


def encode_frame_head(command: BaseCommand, payload_bytes: int) -> bytes:
    """Return what comes before a payload section of ``payload_bytes`` bytes, which the caller writes behind it."""
    body = command.SerializeToString()
    size = len(body)
    return _SIZES.pack(4 + size + payload_bytes, size) + body
