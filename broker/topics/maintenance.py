"""Topics that are due for periodic work: those that changed, and those whose time has come. Idle ones never are.

Design: storage knows which logs changed. Each kind of work has a list of its own, which a change puts the topic on and
`take` empties; work that is not done with a topic puts it back, for the next time or for a time. A change of policies
puts every topic on every list, for it may concern any.
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
    from ..storage.store import Storage
    from .topic import Topic

log = logging.getLogger(__name__)

TOPICS_PER_TURN = 100
"""Topics that are looked at before others get their turn of the loop."""


class Work(Enum):
    """The kinds of periodic work, in the words of a log line about a topic."""

    RATES = "counting its rates"
    TRIM = "trimming it"
    COMPACTION = "looking at its compaction threshold"
    DEDUPLICATION = "its deduplication"


class Maintenance:
    """The lists of one broker.

    Args:
        topics: the loaded topics by full name; looked at, never changed.
        storage: where they are stored.
        namespaces: says when policies changed.
    """

    def __init__(self, topics: Mapping[str, Topic], storage: Storage, namespaces: Namespaces):
        self._topics = topics
        self._storage = storage
        self._namespaces = namespaces
        self._due: dict[Work, set[str]] = {work: set() for work in Work}
        self._later: list[tuple[int, str, str]] = []
        self._planned: dict[tuple[str, str], int] = {}  # the earliest time that ``_later`` has
        self._policies_seen = namespaces.policy_changes

    def again(self, work: Work, topic: Topic) -> None:
        """Keep a topic due for the next time, too."""
        self._due[work].add(str(topic.name))

    def at(self, work: Work, topic: Topic, time_ms: int) -> None:
        """Make a topic due at a time."""
        name = str(topic.name)
        if time_ms < self._planned.get((name, work.value), time_ms + 1):
            self._planned[name, work.value] = time_ms
            heapq.heappush(self._later, (time_ms, name, work.value))

    def trimmed(self, topic: Topic, retention_ms: int) -> None:
        """Note that a topic was trimmed: without a change it is looked at again when its next ledger is old enough."""
        time_ms = topic.log.next_trim_ms(retention_ms)
        if time_ms is not None:
            self.at(Work.TRIM, topic, time_ms)

    async def take(self, work: Work, now_ms: int) -> AsyncIterator[Topic]:
        """Yield the loaded topics that this work has to look at, with rests, and take them off its list.

        Cancellation: those that were not yielded are looked at the next time.
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
        """Log the failure of one topic and try it again the next time; other topics are not concerned."""
        try:
            yield
        except Exception as error:  # whatever it is, no other topic is concerned
            self.again(work, topic)
            unforeseen = None if isinstance(error, MagnetarError) else error
            log.error("%s: %s failed and is tried again: %s", topic.name, work.value, error, exc_info=unforeseen)
