"""Track the output topics of an instance: their partitions and deduplication."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...client.deduplication import DeduplicationOff, switch_on
from ...errors import MagnetarError
from ...security.client_credentials import ClientCredentials
from ..loop_calls import LoopCalls
from ..ports import Endpoints

log = logging.getLogger(__name__)

REFRESH_S = 60.0  # interval between checks for new partitions


@dataclass(frozen=True, slots=True)
class _Known:
    partitions: tuple[str, ...]
    looked_s: float


class OutputTopics:
    """Caches the partitions of output topics, and refreshes them periodically.

    A topic that is deleted while a function runs is recreated without its policies, and others may change policies. So
    deduplication is checked, too: a loss of exactness must be reported.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        admin_url: str,
        credentials: ClientCredentials,
        report: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create an empty cache on the client's event loop.

        Args:
            endpoints: looks up partitions.
            admin_url: REST interface for topic policies; empty to leave them unchanged.
            credentials: credentials for it.
            report: receives a line about an error.
            clock: monotonic clock, in seconds.
        """
        self._endpoints = endpoints
        self._admin_url = admin_url
        self._credentials = credentials
        self._report = report
        self._clock = clock
        self._calls = LoopCalls()
        self._known: dict[str, _Known] = {}

    async def prepare(self, topic: str) -> tuple[str, ...]:
        """Enable deduplication of a topic, and return the full names of its partitions.

        Raises:
            MagnetarError: the topic cannot be looked up, or its deduplication cannot be enabled.
        """
        partitions = tuple(await self._endpoints.partitions(topic))
        if self._admin_url:
            was_on = await asyncio.to_thread(switch_on, self._admin_url, topic, self._credentials)
            if topic in self._known and not was_on:
                self._report(
                    f"deduplication of {topic} was disabled and has been enabled again: outputs resent meanwhile may be"
                    " duplicates; keep it enabled while functions use EFFECTIVELY_ONCE"
                )
        self._known[topic] = _Known(partitions, self._clock())
        return partitions

    async def _refresh(self, topic: str, known: _Known) -> tuple[str, ...]:
        """Refresh a known topic; if the broker is unavailable, return the known partitions."""
        try:
            return await self.prepare(topic)
        except DeduplicationOff as error:
            self._report(str(error))
        except MagnetarError as error:
            log.warning("cannot refresh output topic %s: %s", topic, error)
        self._known[topic] = _Known(known.partitions, self._clock())
        return known.partitions

    def partitions_of(self, topic: str) -> Sequence[str]:
        """Return the full names of a topic's partitions (from the function's thread; may block).

        Raises:
            MagnetarError: the topic cannot be looked up, or its deduplication cannot be enabled.
            InstanceStopping: the instance is stopping.
        """
        known = self._known.get(topic)
        if known is not None and self._clock() - known.looked_s < REFRESH_S:
            return known.partitions
        return self._calls.wait(self.prepare(topic) if known is None else self._refresh(topic, known))

    def stop(self) -> None:
        """Stop all waits (from any thread)."""
        self._calls.stop()
