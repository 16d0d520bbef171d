"""The host of Spark functions as the worker sees it: started, spoken to, and known to be gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ProtocolError
from ...tasks import TaskSet
from ..process.exit_code import how_it_ended
from ..process.messages import LENGTH_BYTES, body_bytes, encode

_log = logging.getLogger(__name__)

END_TIMEOUT_S = 4.5
"""A host that was told to end has ended its JVM by then, or both are killed."""

Event = dict[str, Any]


class HostProcess:
    """One process, from its start to its end.

    Attributes:
        was_told_to_end: its end is no failure.
    """

    def __init__(self, take_event: Callable[[Event], None], has_ended: Callable[[HostProcess, str], None]) -> None:
        """Prepare.

        Args:
            take_event: is given what the host says, on the event loop.
            has_ended: is told, once and last, that the process is gone, and why.
        """
        self._take_event = take_event
        self._has_ended = has_ended
        self._process: Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._tasks = TaskSet("Spark host")
        self._listening: asyncio.Task[None] | None = None
        self._reason = ""
        self._is_ending = False
        self.was_told_to_end = False

    @property
    def pid(self) -> int:
        """Of the process, 0 before it is started."""
        return self._process.pid if self._process is not None else 0

    @property
    def is_alive(self) -> bool:
        """Whether it takes commands."""
        return self._writer is not None and not self._is_ending

    async def start(self, program: Sequence[str], config_text: str) -> None:
        """Start it; returns before it has imported anything.

        Raises:
            OSError: no process could be made.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = await asyncio.create_subprocess_exec(
                    *program, str(theirs.fileno()), config_text, pass_fds=(theirs.fileno(),), stdin=DEVNULL
                )
        except BaseException:
            ours.close()
            raise
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._listening = self._tasks.start(self._listen(reader, self._process), "events")

    def tell(self, command: dict[str, Any]) -> None:
        """Send a command; one that is gone says so by `has_ended`."""
        if self._writer is not None:
            self._writer.write(encode(command))

    async def _listen(self, reader: asyncio.StreamReader, process: Process) -> None:
        try:
            while True:
                size = body_bytes(await reader.readexactly(LENGTH_BYTES))
                self._take(await reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError):
            pass
        except ProtocolError as error:
            self.kill(str(error))
        finally:
            self._close_socket()
            reason = f"the host process of Spark functions {how_it_ended(await process.wait())}"
            self._has_ended(self, self._reason or reason)

    def _take(self, body: bytes) -> None:
        """Take an event; what goes wrong with one is no reason to hear no other."""
        try:
            event = json.loads(body)
            if event["event"] == "failed":
                self._reason = event["reason"]
            else:
                self._take_event(event)
        except Exception:  # noqa: BLE001  it is logged, and whoever it was about hears of the end of the host
            _log.exception("an event of the host of Spark functions could not be taken: %r", body[:200])

    def _close_socket(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def kill(self, reason: str) -> None:
        """End it by force; `has_ended` is told the reason."""
        self._reason = reason
        self._is_ending = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def end(self) -> None:
        """End it in order, by force after `END_TIMEOUT_S`; returns when it is gone."""
        self._is_ending = self.was_told_to_end = True
        self._close_socket()
        if self._listening is None:
            return
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await asyncio.shield(self._listening)
        except TimeoutError:
            self.kill(f"the host did not end within {END_TIMEOUT_S:g} s")
            await self._listening
