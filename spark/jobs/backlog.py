"""How much a function has not processed yet: the backlog of its subscriptions, as the broker counts it.

That is in entries: a batch counts once, however many messages it holds. A status shows `Backlog`, which asks now and
then, and never shows what is older than the end of a run.
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
"""How old an answer may be."""
STATUS_WAIT_S = 0.5
"""How long a status waits for the broker; then it shows what was known last."""
_log = logging.getLogger(__name__)


def backlog_entries(spec: InstanceSpec) -> int:
    """Return the number of entries that a function's subscriptions have not acknowledged. Blocking.

    It is `UNKNOWN` where the broker has no REST interface that can be reached, or answers something else.
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
    """The backlog of one function; for one event loop, which asks the broker in a thread."""

    def __init__(self, spec: InstanceSpec) -> None:
        """Prepare; nothing is asked yet."""
        self._spec = spec
        self._known = UNKNOWN
        self._asked_s: float | None = None
        self._ends_seen = 0
        self._tasks = TaskSet(f"backlog of {spec.key}")
        self._asking: asyncio.Task[None] | None = None

    async def entries(self) -> int:
        """Return the number of entries, or `UNKNOWN` without an answer from the broker."""
        if not self._spec.admin_url:
            return UNKNOWN
        is_old = self._asked_s is None or time.monotonic() - self._asked_s > KEPT_S
        if self._asking is None and is_old:
            self._asking = self._tasks.start(self._ask(), "question")
        if self._asking is not None:
            await asyncio.wait((self._asking,), timeout=STATUS_WAIT_S)  # `close` may cancel the question, not who waits
        return self._known

    def run_ended(self, left: int) -> None:
        """Set what a run has left: answers to questions from before its end are not shown any more.

        Args:
            left: entries, `UNKNOWN` if the run could not tell.
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
            # A run has ended meanwhile: the answer may be of before.

    def close(self) -> None:
        """Cancel the question to the broker."""
        if self._asking is not None:
            self._asking.cancel()
