"""Scheduling of periodic work on topics: only changed topics and topics with scheduled work are processed.

Design: storage tracks which logs have changed. For each kind of work, there is a list of due topics. A change adds the
topic to all lists, `take` empties a list, and unfinished work adds the topic again, for the next round or at a later
time. A policy change adds all topics to all lists, since it may affect any of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from ...errors import MagnetarError

if TYPE_CHECKING:
    from ..policies.namespaces import Namespaces
    from ..storage.port import LogStore
    from .topic import Topic

log = logging.getLogger(__name__)

TOPICS_PER_TURN = 100
"""Number of topics processed before yielding to the event loop."""


class Work(Enum):
    """Kinds of periodic work; the values appear in log messages."""

    RATES = "rate update"
    TRIM = "trimming"
    COMPACTION = "compaction threshold check"
    DEDUPLICATION = "deduplication update"


class Maintenance:
    """The topics of a broker that are due for periodic work.

    Args:
        topics: loaded topics by full name; not modified.
        storage: storage of the topics.
        namespaces: used to detect policy changes.
    """

    def __init__(self, topics: Mapping[str, Topic], storage: LogStore, namespaces: Namespaces):
        self._topics = topics
        self._storage = storage
        self._namespaces = namespaces
        self._due: dict[Work, set[str]] = {work: set() for work in Work}
        self._later: list[tuple[int, str, str]] = []
        self._planned: dict[tuple[str, str], int] = {}  # the earliest time in ``_later``
        self._policies_seen = namespaces.policy_changes

    def again(self, work: Work, topic: Topic) -> None:
        """Make a topic due in the next round."""
        self._due[work].add(str(topic.name))

    def at(self, work: Work, topic: Topic, time_ms: int) -> None:
        """Make a topic due at the given time, or earlier if already planned."""
        name = str(topic.name)
        if time_ms < self._planned.get((name, work.value), time_ms + 1):
            self._planned[name, work.value] = time_ms
            heapq.heappush(self._later, (time_ms, name, work.value))

    def trimmed(self, topic: Topic, retention_ms: int) -> None:
        """Make a trimmed topic due again when its next ledger is old enough, even without changes."""
        time_ms = topic.log.next_trim_ms(retention_ms)
        if time_ms is not None:
            self.at(Work.TRIM, topic, time_ms)

    async def take(self, work: Work, now_ms: int) -> AsyncIterator[Topic]:
        """Yield the loaded topics that are due for this work, with pauses, and remove them from the list.

        Cancellation: topics that have not been yielded remain due.
        """
        self._look(now_ms)
        names = list(self._due[work])
        for number, name in enumerate(names):
            self._due[work].discard(name)
            topic = self._topics.get(name)
            if topic is not None and not topic.is_closed:
                yield topic
            if number % TOPICS_PER_TURN == TOPICS_PER_TURN - 1:
                await asyncio.sleep(0)

    def _look(self, now_ms: int) -> None:
        changed = [log.name for log in self._storage.take_touched()]
        if self._policies_seen != self._namespaces.policy_changes:
            self._policies_seen = self._namespaces.policy_changes
            changed = list(self._topics)
        for names in self._due.values():
            names.update(changed)
        while self._later and self._later[0][0] <= now_ms:
            _, name, work = heapq.heappop(self._later)
            self._planned.pop((name, work), None)
            self._due[Work(work)].add(name)

    @contextlib.contextmanager
    def failing_alone(self, work: Work, topic: Topic) -> Iterator[None]:
        """Log an exception raised for a topic and make the topic due again, so that other topics are not affected."""
        try:
            yield
        except Exception as error:  # other topics must not be affected
            self.again(work, topic)
            unforeseen = None if isinstance(error, MagnetarError) else error
            log.error("%s: %s failed, retrying: %s", topic.name, work.value, error, exc_info=unforeseen)
