"""The backlog of a function's subscriptions, as reported by the broker.

The backlog is counted in entries: a batch counts as one, regardless of its number of messages. The status of a function
shows `Backlog`, which queries the broker periodically and never shows values from before the end of a run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from ...errors import MagnetarError
from ...instance.endpoint_settings import subscription_of
from ...instance.spec import InstanceSpec
from ...tasks import TaskSet
from ...wire.topic_name import parse_topic_name
from ..source.connection import ask

UNKNOWN = -1
KEPT_S = 1.0
"""Maximum age of a value."""
STATUS_WAIT_S = 0.5
"""Time limit for querying the broker for a status, after which the last known value is shown."""
_log = logging.getLogger(__name__)


def backlog_entries(spec: InstanceSpec) -> int:
    """Return the number of unacknowledged entries of a function's subscriptions. Blocking.

    Returns `UNKNOWN` if the broker's REST interface is unreachable or returns an invalid response.
    """
    subscription = subscription_of(spec)
    total = 0
    try:
        for topic in spec.details.source.inputSpecs:
            path = f"/admin/v2/{parse_topic_name(topic).rest_path}"
            partitions = ask(spec.admin_url, "GET", f"{path}/partitions", credentials=spec.credentials)["partitions"]
            kind = "partitioned-stats" if partitions else "stats"
            stats: Any = ask(spec.admin_url, "GET", f"{path}/{kind}", credentials=spec.credentials)
            total += int(stats["subscriptions"].get(subscription, {}).get("msgBacklog", 0))
    except (MagnetarError, ValueError, LookupError, TypeError) as error:
        _log.debug("backlog of %s: %r", spec.key, error)
        return UNKNOWN
    return total


class Backlog:
    """The backlog of one function, queried from the broker in a thread; for use in one event loop."""

    def __init__(self, spec: InstanceSpec) -> None:
        """Create the backlog without querying the broker."""
        self._spec = spec
        self._known = UNKNOWN
        self._asked_s: float | None = None
        self._ends_seen = 0
        self._tasks = TaskSet(f"backlog of {spec.key}")
        self._asking: asyncio.Task[None] | None = None

    async def entries(self) -> int:
        """Return the number of entries, or `UNKNOWN` if the broker has not answered."""
        if not self._spec.admin_url:
            return UNKNOWN
        is_old = self._asked_s is None or time.monotonic() - self._asked_s > KEPT_S
        if self._asking is None and is_old:
            self._asking = self._tasks.start(self._ask(), "question")
        if self._asking is not None:
            await asyncio.wait((self._asking,), timeout=STATUS_WAIT_S)  # only `close` may cancel the request
        return self._known

    def run_ended(self, left: int) -> None:
        """Set the backlog after a run, and discard answers to earlier requests.

        Args:
            left: number of remaining entries, or `UNKNOWN`.
        """
        self._known, self._asked_s = left, None
        self._ends_seen += 1

    async def _ask(self) -> None:
        try:
            self._known = await self._answer()
            self._asked_s = time.monotonic()
        finally:
            self._asking = None

    async def _answer(self) -> int:
        while True:
            ends_seen = self._ends_seen
            answer = await asyncio.to_thread(backlog_entries, self._spec)
            if ends_seen == self._ends_seen:
                return answer
            # A run has ended meanwhile, so the response may be stale.

    def close(self) -> None:
        """Cancel a pending request to the broker."""
        if self._asking is not None:
            self._asking.cancel()
