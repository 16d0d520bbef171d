"""A function's log, read from its log topic, including lines from removed workers."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ...wire.message_id import EARLIEST
from ..messages.connecting import connected
from ..messages.encryption import decrypting
from ..settings import Settings

if TYPE_CHECKING:
    from ...client.consumers.reader import Reader
    from ...client.consumers.received import Message

FUNCTION, INSTANCE, LEVEL = "fqn", "instance", "loglevel"
"""Properties of the messages on a log topic."""


@dataclass(frozen=True, slots=True)
class TopicLogs:
    """The lines of a log topic that match an instance filter.

    Attributes:
        cluster: address and credentials.
        topic: log topic, which several functions may share.
        function: ``tenant/namespace/name``.
        instance_id: show only this instance; None for all.
        private_key: URI of the key of encrypted lines.
    """

    cluster: Settings
    topic: str
    function: str
    instance_id: int | None = None
    private_key: str | None = None

    async def read(self, tail: int, show: Callable[[str], None], *, follow: bool) -> None:
        """Show the last lines of the topic, oldest first, and optionally follow it.

        Args:
            tail: number of lines.
            show: called with each line.
            follow: continue with new lines until cancelled.

        Raises:
            Failure: the broker cannot be reached.
            CryptoError: the lines are encrypted, and the key does not decrypt them.
            MagnetarError: the topic cannot be read.
        """
        from ...client.config import ReaderConfig

        async with connected(self.cluster) as client, AsyncExitStack() as stack:
            last: deque[tuple[int, int, str]] = deque(maxlen=tail)
            readers, order = [], itertools.count()
            for part in await client.partitions(self.topic):
                reader = await client.create_reader(part, EARLIEST, ReaderConfig(**decrypting(self.private_key)))
                stack.push_async_callback(reader.close)
                readers.append(reader)
                while await reader.has_message_available():
                    message = await reader.read_next()
                    last.extend((message.publish_time_ms, next(order), line) for line in self._lines(message))
                # Read partitions one after the other, at most `tail` lines of each.
                last = deque(sorted(last), maxlen=tail)
            for _, _, line in last:
                show(line)
            if follow:
                await asyncio.gather(*(self._follow(reader, show) for reader in readers))

    async def _follow(self, reader: Reader, show: Callable[[str], None]) -> None:
        while True:
            for line in self._lines(await reader.read_next()):
                show(line)

    def _lines(self, message: Message) -> list[str]:
        """Format a message like lines of a log file; empty if it belongs to another function or instance."""
        properties = message.properties
        instance = properties.get(INSTANCE, "")
        if properties.get(FUNCTION) != self.function or (
            self.instance_id is not None and instance != str(self.instance_id)
        ):
            return []
        when = datetime.fromtimestamp(message.publish_time_ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6]
        prefix = f"[{instance}] " if self.instance_id is None else ""
        level = properties.get(LEVEL, "INFO")
        return [f"{prefix}{when}Z {level} {line}" for line in message.data.decode(errors="replace").split("\n")]
