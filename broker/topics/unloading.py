"""Unloading of idle topics, so that memory use depends on the number of topics in use, not on all existing topics.

Design: all loaded topics are checked one by one. A topic that has had neither clients nor changes for some time is
unloaded, unless a policy may still change it over time: topics with expiring or retained messages, with expiring
subscriptions, or to be deleted as inactive remain loaded. For an unloaded topic, storage keeps only the catalogue line
of its log, and the next use reloads the topic.

No topics are loaded at startup. To apply policies to unused topics, topics with a time-based policy are loaded once
after startup, and after each change of such a policy. If there is nothing to do, they are unloaded immediately.

The objects of an unloaded topic form a reference cycle. Only a garbage collection would free it, which blocks a broker
with many topics for seconds. So the cycle is broken explicitly as soon as nothing else refers to the topic; see
`cycles`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from enum import Enum
from functools import cache, partial
from typing import TYPE_CHECKING

from ...errors import MagnetarError
from ...wire.topic_name import DOMAINS, TopicName, parse_topic_name
from ..cycles import free
from ..dispatch.delivery_memory import DeliveryMemory
from ..policies.effective import EVICTION
from ..storage.cursors.names import is_internal
from .inactivity import Idleness, is_unused, loaded_topics
from .limits import is_limited
from .maintenance import TOPICS_PER_TURN

if TYPE_CHECKING:
    from ..policies.effective import EffectivePolicies
    from .incarnations import TopicIncarnations
    from .ports import BrokerPort
    from .topic import Topic

log = logging.getLogger(__name__)
_MODULES = tuple(f"{name.rpartition('.')[0]}." for name in (__name__, DeliveryMemory.__module__))

LOOKS = 4
"""Number of checks within the idle time, so that a topic is unloaded late by at most a quarter of it."""
MAX_FAILURES = 20
"""Checks after which an unloaded topic or log that is still in use is left to the garbage collector."""
FEWEST_COLLECTED = 1000
COLLECTED_SHARE = 0.25
"""Number of such topics and logs, relative to the loaded topics, at which a garbage collection is run."""


@cache
def belongs_to_topic(kind: type) -> bool:
    """Return whether instances of a class belong to a single topic."""
    return kind.__module__.startswith(_MODULES) and not issubclass(kind, Enum | DeliveryMemory)


def works_by_time(policies: EffectivePolicies) -> bool:
    """Return whether a policy may change the topic over time, even without clients."""
    return (
        policies.message_ttl_s > 0
        or policies.subscription_expiration_s > 0
        or policies.inactivity.is_deleted
        or policies.retention.time_ms > 0
        or (policies.age_quota.limit_s > 0 and policies.age_quota.policy == EVICTION)
    )


class Unloading:
    """Unloads the idle topics of a broker, and loads topics to apply policies.

    Args:
        broker: broker whose topics are checked.
        incarnations: used to load and unload topics.
        retention_ms: returns the retention time of a topic; -1 for unlimited.
    """

    def __init__(
        self, broker: BrokerPort, incarnations: TopicIncarnations, retention_ms: Callable[[Topic], int]
    ) -> None:
        self._broker = broker
        self._incarnations = incarnations
        self._retention_ms = retention_ms
        self._idle = Idleness()
        self._unloaded: list[tuple[int, Callable[[], bool]]] = []  # failed attempts, what frees one of them
        self._garbage = 0
        self._seen: dict[str, EffectivePolicies] = {}  # by namespace: policies when its topics were last loaded
        self._changed: dict[tuple[str, str], None] = {("", ""): None}  # all topics, after startup
        self._has_changed = asyncio.Event()
        self._has_changed.set()

    async def unload_idle(self) -> None:
        """Unload topics that have been idle for long enough.

        Cancellation: safe.
        """
        wait_ms = self._broker.config.unload_idle_after_s * 1000
        names = []
        async for topic in loaded_topics(self._broker):
            if not topic.name.is_persistent:
                continue  # deleted as inactive instead
            name = str(topic.name)
            names.append(name)
            state = (topic, topic.joins, topic.log.last_confirmed, tuple(topic.subscriptions))
            now_ms = self._broker.now_ms()
            since_ms = self._idle.since(name, state if self._is_idle(topic) else None, now_ms)
            # Without an await after the last check, a client that connects now finds the topic unloaded.
            if now_ms - since_ms >= wait_ms and self._is_at_rest(topic):
                self._unload(topic)
        self._idle.keep_only(names)
        topics = self._broker.topics
        storage = self._broker.storage
        unused = [name for name in storage.used_names() if name not in topics]
        for first in range(0, len(unused), TOPICS_PER_TURN):
            # Repeat the check, since a client may have loaded the topic meanwhile.
            names = [name for name in unused[first : first + TOPICS_PER_TURN] if name not in topics]
            self._unloaded += [(0, release) for release in storage.unload(names)]
            await asyncio.sleep(0)
        await self._free()

    async def _free(self) -> None:
        """Free unloaded topics and logs that nothing uses any longer."""
        unloaded, self._unloaded = self._unloaded, []
        for number, (failures, release) in enumerate(unloaded):
            if not release():
                if failures + 1 < MAX_FAILURES:
                    self._unloaded.append((failures + 1, release))
                else:
                    self._garbage += 1
            if number % TOPICS_PER_TURN == TOPICS_PER_TURN - 1:
                await asyncio.sleep(0)
        if self._garbage >= max(FEWEST_COLLECTED, COLLECTED_SHARE * len(self._broker.topics)):
            log.debug("collecting the garbage of %d unloaded topics and logs", self._garbage)
            self._garbage = 0
            gc.collect()

    def note_policies(self, namespace: str, topic: str) -> None:
        """Schedule the loading of topics affected by changed policies; arguments as in `Namespaces.on_policies`."""
        self._changed[namespace, topic] = None
        self._has_changed.set()

    async def keep_loading_due(self) -> None:
        """Call `load_due` after startup and after each policy change, until cancelled.

        Cancellation: safe.
        """
        while True:
            await self._has_changed.wait()
            await self.load_due()

    async def load_due(self) -> None:
        """Load unused topics to which a changed time-based policy applies.

        Cancellation: safe.
        """
        self._has_changed.clear()
        changed, self._changed = self._changed, {}
        concerned = [(namespace, topic) for namespace, topic in changed if topic or self._is_new(namespace)]
        if not concerned:
            return
        is_any = ("", "") in concerned
        namespaces = {namespace for namespace, topic in concerned if not topic}
        topics = {topic for _, topic in concerned}
        names = self._broker.storage.log_names() if is_any else self._names({namespace for namespace, _ in concerned})
        for number, name in enumerate(names):
            if number % TOPICS_PER_TURN == TOPICS_PER_TURN - 1:
                await asyncio.sleep(0)
            topic_name = parse_topic_name(name)
            if name in self._broker.topics or not is_limited(topic_name):
                continue
            if not is_any and topic_name.namespace_name not in namespaces and str(topic_name.base) not in topics:
                continue
            try:
                if not works_by_time(self._broker.namespaces.effective(topic_name)):
                    continue
                topic = await self._incarnations.load(topic_name, create=False)
                if not topic.is_closed and not topic.joins and self._is_idle(topic) and self._is_at_rest(topic):
                    self._unload(topic)
            except MagnetarError as error:
                log.warning("cannot load %s to apply its policies: %s", name, error)
            except Exception:  # other topics must not be affected
                log.exception("cannot load %s to apply its policies", name)

    def _names(self, namespaces: set[str]) -> list[str]:
        """Return the persistent topics of the given namespaces without scanning others."""
        index = self._broker.topic_index
        return [name for namespace in namespaces for name in index.names(namespace, DOMAINS[0])]

    def _is_new(self, namespace: str) -> bool:
        """Return whether the policies of a namespace have changed since its topics were last loaded."""
        if not namespace:
            return True
        tenant, _, local = namespace.partition("/")
        policies = self._broker.namespaces.effective(TopicName("persistent", tenant, local, "any"))
        is_new = self._seen.get(namespace) != policies
        self._seen[namespace] = policies
        return is_new

    def _unload(self, topic: Topic) -> None:
        self._incarnations.unload(topic.name)
        self._unloaded.append((0, partial(free, [topic], belongs_to_topic)))

    def _is_idle(self, topic: Topic) -> bool:
        """Return whether the topic has no clients and no work in progress."""
        return (
            not topic.producers
            and not topic.producers.waiting
            and not topic.compaction.is_running
            and not any(one.consumers or one.creation is not None for one in topic.subscriptions.values())
        )

    def _is_at_rest(self, topic: Topic) -> bool:
        """Return whether an idle topic will not change over time; this closes the open ledger, if any."""
        policies = topic.policies
        own = [one for one in topic.subscriptions.values() if not is_internal(one.name)]
        if policies.inactivity.is_deleted and is_unused(topic, policies.inactivity.mode):
            return False
        if own and policies.subscription_expiration_s:
            return False
        is_evicted = policies.age_quota.limit_s > 0 and policies.age_quota.policy == EVICTION
        if (policies.message_ttl_s or is_evicted) and any(one.cursor.backlog_entries for one in own):
            return False
        threshold = self._broker.namespaces.compaction_threshold(topic.name)
        if threshold and topic.compaction.waiting_bytes > threshold:
            return False
        topic.log.close_ledger()
        return topic.log.next_trim_ms(self._retention_ms(topic)) is None
