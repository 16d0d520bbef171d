"""Pause and resume input partitions with EFFECTIVELY_ONCE, which does not support seeking."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

from ...errors import InvalidConfig
from ...wire.message_id import MessageId
from ..core import InstanceCore
from ..input_names import find_partition


class PartitionSteering:
    """A `function_context.Steering` that pauses and resumes partitions."""

    def __init__(self, core: InstanceCore, partitions: Collection[str]) -> None:
        """Create the steering of an instance.

        Args:
            core: the instance's core.
            partitions: full names of the input partitions; more may be added.
        """
        self._core = core
        self._partitions = partitions
        self._paused: set[str] = set()
        self._going: dict[str, asyncio.Event] = {}

    def resumed(self, name: str) -> asyncio.Event:
        """Return an event that is set while a partition is not paused."""
        if (event := self._going.get(name)) is None:
            event = self._going[name] = asyncio.Event()
            event.set()
        return event

    def paused(self) -> str:
        """Return a status text that names the paused partitions, or an empty string."""
        paused = sorted(self._paused)
        return f"the function has paused {', '.join(paused)}" if paused else ""

    def seek(self, topic: str, partition: int, target: MessageId) -> None:
        """Raise InvalidConfig: moving a cursor does not undo results."""
        raise InvalidConfig(
            "context.seek cannot be used with EFFECTIVELY_ONCE, which neither repeats nor skips messages: use"
            " `functions reset-cursor`, which starts over, or ATLEAST_ONCE"
        )

    def pause(self, topic: str, partition: int) -> None:
        """Stop taking entries from an input."""
        self._core.mailbox.post(partial(self._set, self._find(topic, partition), True))

    def resume(self, topic: str, partition: int) -> None:
        """Resume an input."""
        self._core.mailbox.post(partial(self._set, self._find(topic, partition), False))

    def _find(self, topic: str, partition: int) -> str:
        return find_partition(self._partitions.__contains__, topic, partition, ", ".join(self._partitions))

    def _set(self, name: str, is_paused: bool) -> None:
        if is_paused:
            self._paused.add(name)
            self.resumed(name).clear()
        else:
            self._paused.discard(name)
            self.resumed(name).set()
