"""Socket to a child process that takes commands and sends events, both as messages of `messages`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ProtocolError
from .forked import ForkedProcess
from .messages import LENGTH_BYTES, body_bytes, encode


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


async def execute(program: Callable[[int], Sequence[str]]) -> ProcessChannel:
    """Start a process by exec.

    Args:
        program: returns the command line, given the number of the process's end of the socket.

    Raises:
        OSError: no process could be made.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            number = theirs.fileno()
            process = await asyncio.create_subprocess_exec(*program(number), pass_fds=(number,), stdin=DEVNULL)
    except BaseException:
        ours.close()
        raise
    return ProcessChannel(process, *await asyncio.open_unix_connection(sock=ours))
