"""The output topics of an instance: their partitions, and that the broker drops duplicates on them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...client.client import AsyncClient
from ..stopping import InstanceStopping
from .deduplication import switch_on

REFRESH_S = 60.0  # partitions may be added


@dataclass(frozen=True, slots=True)
class _Known:
    partitions: tuple[str, ...]
    looked_s: float


class OutputTopics:
    """What is known of the topics that an instance sends to; asks the broker when a topic is new."""

    def __init__(self, client: AsyncClient, admin_url: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare, on the client's event loop.

        Args:
            client: asks for partitions.
            admin_url: where the policies of topics are set; empty leaves them as they are.
            clock: rising seconds.
        """
        self._client = client
        self._admin_url = admin_url
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._known: dict[str, _Known] = {}
        self._stopping: concurrent.futures.Future[None] = concurrent.futures.Future()

    async def prepare(self, topic: str) -> tuple[str, ...]:
        """Return the full names of a topic's partitions, having made sure of its deduplication.

        Raises:
            MagnetarError: the topic cannot be looked up, or its deduplication cannot be switched on.
        """
        partitions = tuple(await self._client.partitions(topic))
        if self._admin_url and topic not in self._known:
            await asyncio.to_thread(switch_on, self._admin_url, topic)
        self._known[topic] = _Known(partitions, self._clock())
        return partitions

    def partitions_of(self, topic: str) -> Sequence[str]:
        """Return the full names of a topic's partitions (from the function's thread; may block).

        Raises:
            MagnetarError: as `prepare`.
            InstanceStopping: the instance is being stopped.
        """
        known = self._known.get(topic)
        if known is not None and self._clock() - known.looked_s < REFRESH_S:
            return known.partitions
        try:
            looking = asyncio.run_coroutine_threadsafe(self.prepare(topic), self._loop)
        except RuntimeError as error:  # the loop is closed: this is an abandoned thread
            raise InstanceStopping from error
        both: tuple[concurrent.futures.Future[Any], ...] = (looking, self._stopping)
        concurrent.futures.wait(both, return_when=concurrent.futures.FIRST_COMPLETED)
        if not looking.done():
            looking.cancel()
            raise InstanceStopping
        return looking.result()

    def stop(self) -> None:
        """Let nobody wait any more (from any thread)."""
        if not self._stopping.done():
            self._stopping.set_result(None)
