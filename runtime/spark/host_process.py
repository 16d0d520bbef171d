"""Client of the host process of Spark functions: starts it, commands it, takes its events, and notices its end."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from ...tasks import TaskSet
from ..process.channel import ProcessChannel, execute
from ..process.exit_code import how_it_ended

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
        self._channel: ProcessChannel | None = None
        self._tasks = TaskSet("Spark host")
        self._listening: asyncio.Task[None] | None = None
        self._reason = ""
        self._is_ending = False
        self.was_told_to_end = False

    @property
    def pid(self) -> int:
        """Of the process, 0 before it is started."""
        return self._channel.pid if self._channel is not None else 0

    @property
    def is_alive(self) -> bool:
        """Whether it takes commands."""
        return self._channel is not None and self._channel.is_open and not self._is_ending

    async def start(self, program: Sequence[str], config_text: str) -> None:
        """Start it; returns before it has imported anything.

        Raises:
            OSError: no process could be made.
        """
        self._channel = await execute(lambda number: [*program, str(number), config_text])
        self._listening = self._tasks.start(self._listen(self._channel), "events")

    def tell(self, command: dict[str, Any]) -> None:
        """Send a command; one that is gone says so by `has_ended`."""
        if self._channel is not None:
            self._channel.tell(command)

    async def _listen(self, channel: ProcessChannel) -> None:
        try:
            damage = await channel.listen(self._take)
            if damage:
                self.kill(damage)
        finally:
            reason = f"the host process of Spark functions {how_it_ended(await channel.wait())}"
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

    def kill(self, reason: str) -> None:
        """End it by force; `has_ended` is told the reason."""
        self._reason = reason
        self._is_ending = True
        if self._channel is not None:
            self._channel.kill()

    async def end(self) -> None:
        """End it in order, by force after `END_TIMEOUT_S`; returns when it is gone."""
        self._is_ending = self.was_told_to_end = True
        if self._channel is None or self._listening is None:
            return
        self._channel.close()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await asyncio.shield(self._listening)
        except TimeoutError:
            self.kill(f"the host did not end within {END_TIMEOUT_S:g} s")
            await self._listening
