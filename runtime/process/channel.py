"""The socket to a child process, for commands and events in the format of `messages`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any

from ...errors import ProtocolError
from .forked import ForkedProcess

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
_LENGTH = Struct(">I")
LENGTH_BYTES = _LENGTH.size

LEASE_S = 3.0
"""How long a worker may be stopped (SIGSTOP) and silent before it loses its instances, in seconds. A broker with a
keep-alive of 2 s, the shortest practical one, lets other workers take them over 4 s after the worker's last message.
"""

HELD_LEASE_S = 60.0
"""How long a worker that is not stopped may be silent. A thread function may block its interpreter (a regular
expression, a call into C). Its processes do not need the worker meanwhile, and their locks keep other workers away. A
broker with the default keep-alive disconnects such a worker after this time; then other workers wait for the locks.
"""

LOOK_S = 0.25
"""Interval at which the zygote checks whether a silent worker is stopped, in seconds."""

BEAT_S = 0.5
"""Interval of a worker's heartbeats, in seconds."""


def encode(message: dict[str, Any]) -> bytes:
    """Encode a message."""
    body = json.dumps(message).encode()
    return _LENGTH.pack(len(body)) + body


def body_bytes(head: bytes) -> int:
    """Return the length of a message body from its header.

    Raises:
        ProtocolError: the length exceeds `MESSAGE_BYTES_MAX`.
    """
    (length,) = _LENGTH.unpack(head)
    if length > MESSAGE_BYTES_MAX:
        raise ProtocolError(f"message of {length} bytes between worker and zygote exceeds {MESSAGE_BYTES_MAX}")
    return int(length)


def take(buffer: bytearray) -> dict[str, Any] | None:
    """Remove the first complete message from a buffer and return it, or None if it is incomplete."""
    if len(buffer) < LENGTH_BYTES:
        return None
    end = LENGTH_BYTES + body_bytes(bytes(buffer[:LENGTH_BYTES]))
    if len(buffer) < end:
        return None
    message: dict[str, Any] = json.loads(buffer[LENGTH_BYTES:end])
    del buffer[:end]
    return message


class ProcessChannel:
    """A child process and the socket to it."""

    def __init__(
        self, process: ForkedProcess | Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @property
    def is_open(self) -> bool:
        """Whether the process accepts commands."""
        return not self._writer.is_closing()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def tell(self, command: dict[str, Any]) -> None:
        """Send a command; ignored if the process has ended."""
        if self.is_open:
            self._writer.write(encode(command))

    async def listen(self, take: Callable[[bytes], None]) -> str:
        """Call a function with the body of each message until the connection ends, and close it.

        Returns:
            the error in the last message; empty if the connection was closed normally.
        """
        try:
            while True:
                size = body_bytes(await self._reader.readexactly(LENGTH_BYTES))
                take(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError):
            return ""
        except ProtocolError as error:
            return str(error)
        finally:
            self.close()

    async def wait(self) -> int:
        """Return the exit code once the process has ended. Cancellation: safe."""
        return await self._process.wait()

    def kill(self) -> None:
        """Kill the process."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # already ended
                self._process.kill()

    def close(self) -> None:
        """Close the socket, which ends the process."""
        self._writer.close()


async def execute(
    program: Callable[[int], Sequence[str]], environment: Mapping[str, str] | None = None
) -> ProcessChannel:
    """Start a process with exec.

    Args:
        program: returns the command line, called with the descriptor of the process's end of the socket.
        environment: environment variables; None for this process's.

    Raises:
        OSError: the process could not be created.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            number = theirs.fileno()
            process = await asyncio.create_subprocess_exec(
                *program(number), pass_fds=(number,), stdin=DEVNULL, env=environment
            )
    except BaseException:
        ours.close()
        raise
    return ProcessChannel(process, *await asyncio.open_unix_connection(sock=ours))
