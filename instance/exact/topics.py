"""The output topics of an instance: their partitions and their deduplication."""

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

REFRESH_S = 60.0  # partitions may be added


@dataclass(frozen=True, slots=True)
class _Known:
    partitions: tuple[str, ...]
    looked_s: float


class OutputTopics:
    """Known topics that an instance sends to; queries the broker for new ones, and periodically.

    A topic that is deleted while a function runs is recreated without its policies, and policies may be changed by
    others. So its deduplication is checked, too: losing exactness must be reported.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        admin_url: str,
        credentials: ClientCredentials,
        report: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare, on the client's event loop.

        Args:
            endpoints: returns their partitions.
            admin_url: REST interface for topic policies; empty to leave them unchanged.
            credentials: credentials for it.
            report: takes a line about an error.
            clock: monotonic seconds.
        """
        self._endpoints = endpoints
        self._admin_url = admin_url
        self._credentials = credentials
        self._report = report
        self._clock = clock
        self._calls = LoopCalls()
        self._known: dict[str, _Known] = {}

    async def prepare(self, topic: str) -> tuple[str, ...]:
        """Return the full names of a topic's partitions, after ensuring its deduplication.

        Raises:
            MagnetarError: the topic cannot be looked up, or its deduplication cannot be enabled.
        """
        partitions = tuple(await self._endpoints.partitions(topic))
        if self._admin_url:
            was_on = await asyncio.to_thread(switch_on, self._admin_url, topic, self._credentials)
            if topic in self._known and not was_on:
                self._report(
                    f"deduplication of {topic} was off and is switched on again: outputs that were sent again meanwhile"
                    " are there twice; leave it on as long as functions are EFFECTIVELY_ONCE"
                )
        self._known[topic] = _Known(partitions, self._clock())
        return partitions

    async def _refresh(self, topic: str, known: _Known) -> tuple[str, ...]:
        """Refresh a known topic, without waiting for an unavailable broker."""
        try:
            return await self.prepare(topic)
        except DeduplicationOff as error:
            self._report(str(error))
        except MagnetarError as error:
            log.warning("cannot look again at output topic %s: %s", topic, error)
        self._known[topic] = _Known(known.partitions, self._clock())
        return known.partitions

    def partitions_of(self, topic: str) -> Sequence[str]:
        """Return the full names of a topic's partitions (from the function's thread; may block).

        Raises:
            MagnetarError: as `prepare`.
            InstanceStopping: the instance is stopping.
        """
        known = self._known.get(topic)
        if known is not None and self._clock() - known.looked_s < REFRESH_S:
            return known.partitions
        return self._calls.wait(self.prepare(topic) if known is None else self._refresh(topic, known))

    def stop(self) -> None:
        """Stop all waits (from any thread)."""
        self._calls.stop()
