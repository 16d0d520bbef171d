"""Socket to a child process that takes commands and sends events, both as messages of `messages`."""

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
"""A worker that is stopped (SIGSTOP) and says nothing for so long has lost its instances; a broker with a keep-alive of
2 s, the shortest sound one, lets others have them 4 s after its last word."""

HELD_LEASE_S = 60.0
"""The same for a worker that is not stopped. A thread function may hold its interpreter (a regular expression, a call
into C), so that it says nothing. Its processes need nothing of it meanwhile, and their locks keep others from their
work. A broker with the default keep-alive gives such a worker up after so long; then others wait for the locks."""

LOOK_S = 0.25
"""How often the zygote looks whether a silent worker is stopped."""

BEAT_S = 0.5
"""Seconds between two heartbeats of a worker."""


def encode(message: dict[str, Any]) -> bytes:
    """Return the bytes of a message."""
    body = json.dumps(message).encode()
    return _LENGTH.pack(len(body)) + body


def body_bytes(head: bytes) -> int:
    """Return how long the message behind a length is.

    Raises:
        ProtocolError: it is longer than `MESSAGE_BYTES_MAX`.
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
    """One child process and the socket to it."""

    def __init__(
        self, process: ForkedProcess | Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @property
    def is_open(self) -> bool:
        """Whether the process takes commands."""
        return not self._writer.is_closing()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def tell(self, command: dict[str, Any]) -> None:
        """Send a command; a process that is gone takes none."""
        if self.is_open:
            self._writer.write(encode(command))

    async def listen(self, take: Callable[[bytes], None]) -> str:
        """Hand on the body of each message until the connection ends, and close it.

        Returns:
            What was wrong with the last message; empty if the connection just ended.
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
        """End the process by force."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                self._process.kill()

    def close(self) -> None:
        """Close the socket, at which the process ends."""
        self._writer.close()


async def execute(
    program: Callable[[int], Sequence[str]], environment: Mapping[str, str] | None = None
) -> ProcessChannel:
    """Start a process by exec.

    Args:
        program: returns the command line, given the number of the process's end of the socket.
        environment: its; None: this process's.

    Raises:
        OSError: no process could be made.
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
