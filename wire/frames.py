"""Frames of the binary protocol: decoding and encoding of commands, without I/O.

Design: every frame is ``[u32 total][u32 command size][BaseCommand]``, followed by a payload section for SEND and
MESSAGE. The decoder is fed received bytes and returns complete frames. A payload is copied once, out of the receive
buffer: entries live much longer (in the journal and queues) than the buffer in which they arrived, and a slice that
pins a 256 KiB buffer for a 100-byte entry would cost more than the copy.

Source: Pulsar binary protocol, section Framing.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from ..errors import FrameTooLarge, ProtocolError
from .pulsar_api_pb2 import BaseCommand

DEFAULT_MAX_MESSAGE_BYTES = 5 * 1024 * 1024
"""Default message size limit of a broker, in bytes."""

FRAME_PADDING_BYTES = 10 * 1024
"""Additional size of a frame beyond the largest message, for the command and metadata."""

_U32 = Struct(">I")
_SIZES = Struct(">II")
_unpack_sizes = _SIZES.unpack_from
_parse_command = BaseCommand.FromString
_new_frame = tuple.__new__  # takes half the time of calling the class
_BIG_BYTES = 64 * 1024
"""Minimum size of frames that are extracted from the buffer individually instead of with everything else."""
# The parser does not check for missing required fields, and a separate check takes longer than parsing. In these
# commands, which arrive by the thousand, a missing field reads as 0 and is handled like a wrong one.
_BURSTS = frozenset(
    (BaseCommand.SEND, BaseCommand.SEND_RECEIPT, BaseCommand.MESSAGE, BaseCommand.ACK, BaseCommand.FLOW)
)


class Frame(NamedTuple):
    """A frame: its command, and the payload section after it (or ``b""``)."""

    command: BaseCommand
    payload: bytes


class Run(NamedTuple):
    """Consecutive frames of a consumer or producer; see `runs`."""

    owner_id: int
    rows: list[Any]


ReadRun = Callable[[bytes, int, int], tuple[int, list[Any], int]]
"""Reader of frames of one type in received bytes: `runs.read_messages` or `runs.read_sends`."""


class FrameDecoder:
    """Decodes a byte stream into frames.

    Invariant: less than one frame is buffered between calls, so never more than ``max_frame_bytes`` plus the last read.

    Attributes:
        max_frame_bytes: maximum size of an accepted frame.
        wanted_bytes: size of the incomplete frame, or 4 while it is unknown.
    """

    __slots__ = ("_kept", "max_frame_bytes", "wanted_bytes")

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_MESSAGE_BYTES + FRAME_PADDING_BYTES):
        self.max_frame_bytes = max_frame_bytes
        self._kept = bytearray()
        # Length that `_kept` must reach before a frame can be complete: avoids parsing each piece of a large frame.
        self.wanted_bytes = 4

    @property
    def kept_bytes(self) -> int:
        """Number of bytes received of the incomplete frame."""
        return len(self._kept)

    def forget(self) -> None:
        """Drop the incomplete frame. Nothing can be read afterwards."""
        self._kept = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that ``data`` completes, in order.

        Args:
            data: received bytes of any length; no reference is kept.

        Raises:
            FrameTooLarge: a frame's size exceeds ``max_frame_bytes``; close the connection.
            ProtocolError: the sizes are inconsistent, or the command cannot be parsed; close the connection.
        """
        return self._feed(data, None, b"")

    def feed_runs(self, data: bytes, read_run: ReadRun, head: bytes) -> list[Frame | Run]:
        """Same as `feed`, but with runs in place of the frames that ``read_run`` can read.

        Args:
            data: received bytes of any length; no reference is kept.
            read_run: reads frames of one type.
            head: first bytes of their commands.

        Raises: as `feed`.
        """
        return self._feed(data, read_run, head)

    def _feed(self, data: bytes, read_run: ReadRun | None, head: bytes) -> list[Any]:
        frames: list[Any] = []
        if self._kept:
            self._kept += data
            if len(self._kept) < self.wanted_bytes:
                return []
            data = self._take_kept(frames)
        size = len(data)
        start = 0
        # Called for every received message and every receipt, so calls are inlined.
        while size - start >= 8:
            total, command_bytes = _unpack_sizes(data, start)
            if total > self.max_frame_bytes:
                raise _refused(data[start : start + 4], total, self.max_frame_bytes)
            end = start + 4 + total
            if end > size:
                break
            command_end = start + 8 + command_bytes
            if command_end > end:
                raise _contradiction(total, command_bytes)
            if read_run is not None and data.startswith(head, start + 8):
                owner_id, rows, start = read_run(data, start, self.max_frame_bytes)
                if rows:
                    frames.append(_new_frame(Run, (owner_id, rows)))
                    continue
            body = data[start + 8 : command_end]
            try:
                command = _parse_command(body)
            except DecodeError as error:
                raise _unreadable(body, error) from error
            if command.type not in _BURSTS and not command.IsInitialized():
                raise _incomplete(body, command)
            frames.append(_new_frame(Frame, (command, data[command_end:end])))
            start = end
        self._keep(data, start)
        return frames

    def _keep(self, data: bytes, start: int) -> None:
        """Buffer the bytes after the last complete frame, and compute the size to wait for."""
        self.wanted_bytes = 4
        rest = len(data) - start
        if rest >= 4:
            total = _U32.unpack_from(data, start)[0]
            if total > self.max_frame_bytes:
                raise _refused(data[start : start + 4], total, self.max_frame_bytes)
            if rest >= 4 + total:  # and less than 8 bytes, or it would be a frame
                raise _contradiction(total, 0)
            if rest >= 8 and (command_bytes := _U32.unpack_from(data, start + 4)[0]) > total - 4:
                raise _contradiction(total, command_bytes)
            self.wanted_bytes = 4 + total
        if rest:
            self._kept += memoryview(data)[start:] if start else data

    def _take_kept(self, frames: list[Frame]) -> bytes:
        """Return the buffered bytes, and clear the buffer.

        A complete large frame is added to ``frames`` instead, so that its payload is copied only once.
        """
        kept, end = self._kept, self.wanted_bytes
        start = 0
        if end >= _BIG_BYTES:
            start = end
            with memoryview(kept) as view:
                command_bytes = _U32.unpack_from(view, 4)[0]
                if 8 + command_bytes > end:
                    raise _contradiction(end - 4, command_bytes)
                command = _command_of(bytes(view[8 : 8 + command_bytes]))
                frames.append(Frame(command, bytes(view[8 + command_bytes : end])))
        data = bytes(memoryview(kept)[start:])
        kept.clear()
        return data


_HTTP = (b"HTTP", b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI")
_TLS = (b"\x16\x03", b"\x15\x03")


def _refused(head: bytes, total: int, max_frame_bytes: int) -> ProtocolError:
    """Return the error for a size above the limit, usually caused by a connection to the wrong port."""
    foreign = "HTTP" if head in _HTTP else "TLS" if head.startswith(_TLS) else ""
    if foreign:
        return ProtocolError(f"the peer speaks {foreign}, not Pulsar's binary protocol: correct the scheme or port")
    return FrameTooLarge(f"frame of {total} bytes exceeds max_frame_bytes={max_frame_bytes}")


def _contradiction(total: int, command_bytes: int) -> ProtocolError:
    if total < 4:
        return ProtocolError(f"frame of {total} bytes is too short for a command size of 4 bytes")
    return ProtocolError(f"command of {command_bytes} bytes exceeds its frame of {total} bytes")


def _command_of(body: bytes) -> BaseCommand:
    try:
        command = _parse_command(body)
    except DecodeError as error:
        raise _unreadable(body, error) from error
    if command.type not in _BURSTS and not command.IsInitialized():
        raise _incomplete(body, command)
    return command


def _unreadable(body: bytes, error: DecodeError) -> ProtocolError:
    return ProtocolError(f"command of {len(body)} bytes cannot be parsed: {error}")


def _incomplete(body: bytes, command: BaseCommand) -> ProtocolError:
    return ProtocolError(f"command {command.type} of {len(body)} bytes lacks a required field")


def encode_frame(command: BaseCommand, payload: bytes = b"") -> bytes:
    """Encode a frame; ``payload`` is a payload section from `payload.seal`."""
    body = command.SerializeToString()
    size = len(body)
    return _SIZES.pack(4 + size + len(payload), size) + body + payload
