"""Expiry of inactive topics, subscriptions without consumers, and old messages.

Design: all loaded topics are checked one by one, with pauses, at a configurable interval. Topics without expiry
policies are skipped. Inactive non-persistent topics are deleted regardless of policies, since no data is lost. The
time of the last use is not recorded, because uses are on hot paths. Instead, each check compares a topic's state with
that in the previous check (`Idleness`). So a topic may be considered idle up to one interval late, but never early.
Idle times start from zero when the broker is restarted.

A topic is deleted under the lock of its name, after another check that it is still inactive.

Source: Pulsar's `broker.conf` (brokerDeleteInactiveTopics…, subscriptionExpirationTimeMinutes and
ttlDurationDefaultInSeconds) and its namespace and topic policies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from ...errors import ConsumerBusy, MagnetarError, NotAllowed, TopicNotFound
from ..policies.policies import Retention
from ..storage.cursors.names import is_internal
from .limits import is_limited
from .maintenance import TOPICS_PER_TURN

if TYPE_CHECKING:
    from .incarnations import TopicIncarnations
    from .ports import BrokerPort
    from .subscription import Subscription
    from .topic import Topic

NO_RETENTION = Retention(0, 0)
CAUGHT_UP = "delete_when_subscriptions_caught_up"
log = logging.getLogger(__name__)


class Idleness:
    """Tracks how long objects have been in the same state."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, tuple[object, int]] = {}

    def since(self, key: Hashable, state: object, now_ms: int) -> int:
        """Return the time at which an object entered its current state, in milliseconds.

        Args:
            key: key that identifies the object.
            state: a value that changes with every use of the object; None while the object is in use.
            now_ms: current time.
        """
        last, since_ms = self._seen.get(key, (None, now_ms))
        if state is None or state != last:
            since_ms = now_ms
        self._seen[key] = state, since_ms
        return since_ms

    def keep_only(self, keys: Iterable[Hashable]) -> None:
        """Forget all objects except those with these keys."""
        self._seen = {key: self._seen[key] for key in keys if key in self._seen}


def is_past(idle_ms: int, wait_s: float, retention: Retention) -> bool:
    """Return whether a topic with this idle time may be deleted, considering its retention time as well."""
    return retention.time_ms >= 0 and idle_ms >= max(wait_s * 1000, retention.time_ms)


def is_unused(topic: Topic, mode: str) -> bool:
    """Return whether the topic has no clients and no subscriptions, or with ``CAUGHT_UP`` no clients and no backlog."""
    subscriptions = [one for one in topic.subscriptions.values() if not is_internal(one.name)]
    if topic.producers or topic.producers.waiting or any(one.consumers for one in subscriptions):
        return False
    if mode == CAUGHT_UP:
        return not any(one.cursor.backlog_entries for one in subscriptions)
    return not subscriptions


async def loaded_topics(broker: BrokerPort) -> AsyncIterator[Topic]:
    """Yield all loaded topics of a broker, with pauses, as long as its storage accepts changes."""
    for number, topic in enumerate(list(broker.topics.values())):
        if number % TOPICS_PER_TURN == TOPICS_PER_TURN - 1:
            await asyncio.sleep(0)
        if broker.storage.failure is not None:
            return  # the storage has logged the failure
        if not topic.is_closed:
            yield topic


class Inactivity:
    """Performs the periodic expiry checks of a broker."""

    def __init__(self, broker: BrokerPort, incarnations: TopicIncarnations) -> None:
        self._broker = broker
        self._incarnations = incarnations
        self._topics = Idleness()
        self._subscriptions = Idleness()

    async def delete_topics(self) -> None:
        """Delete topics that have been inactive for long enough; non-persistent topics regardless of policies.

        Cancellation: safe; a deletion in progress will be completed.
        """
        names = []
        async for topic in self._loaded():
            policy, retention = topic.policies.inactivity, topic.policies.retention
            if not topic.name.is_persistent:
                retention = NO_RETENTION
            elif not policy.is_deleted:
                continue
            name = str(topic.name)
            names.append(name)
            state = (topic, topic.joins, topic.log.last_confirmed, tuple(topic.subscriptions))
            now_ms = self._broker.now_ms()
            since_ms = self._topics.since(name, state if is_unused(topic, policy.mode) else None, now_ms)
            if now_ms > since_ms and is_past(now_ms - since_ms, policy.after_s, retention):
                await self._alone(f"deletion of inactive topic {name}", partial(self._delete, topic))
        self._topics.keep_only(names)

    async def _delete(self, topic: Topic) -> None:
        policy = topic.policies.inactivity
        mode = policy.mode
        joins, last = topic.joins, topic.log.last_confirmed

        def is_still() -> bool:
            is_same = (topic.joins, topic.log.last_confirmed) == (joins, last) and not topic.is_closed
            return is_same and topic.policies.inactivity == policy and is_unused(topic, mode)

        await self._incarnations.delete(topic.name, force=False, with_subscriptions=mode == CAUGHT_UP, only_if=is_still)
        log.info("deleted inactive topic %s", topic.name)

    async def expire_subscriptions(self) -> None:
        """Delete durable subscriptions that have had no consumers for long enough.

        Cancellation: safe.
        """
        keys = []
        async for topic in self._loaded():
            wait_ms = topic.policies.subscription_expiration_s * 1000
            if not wait_ms:
                continue
            for subscription in list(topic.subscriptions.values()):
                if is_internal(subscription.name) or not subscription.is_durable:
                    continue
                key = (str(topic.name), subscription.name)
                keys.append(key)
                # Joining producers and expired messages do not count as use of the subscription.
                state = (subscription, subscription.joins, subscription.resets)
                now_ms = self._broker.now_ms()
                since_ms = self._subscriptions.since(key, None if subscription.consumers else state, now_ms)
                if now_ms - since_ms >= wait_ms:
                    what = f"deletion of expired subscription {subscription.name} of {topic.name}"
                    await self._alone(what, partial(self._expire, subscription))
        self._subscriptions.keep_only(keys)

    async def _expire(self, subscription: Subscription) -> None:
        subscription.topic.check_has(subscription)
        await subscription.delete(force=False)
        log.info("deleted expired subscription %s of %s", subscription.name, subscription.topic.name)

    async def expire_messages(self) -> None:
        """Acknowledge messages older than their topic's TTL, for all durable subscriptions.

        Cancellation: safe.
        """
        async for topic in self._loaded():
            ttl_s = topic.policies.message_ttl_s
            if not ttl_s:
                continue
            for subscription in list(topic.subscriptions.values()):
                if subscription.is_durable and not is_internal(subscription.name):
                    what = f"message expiry on subscription {subscription.name} of {topic.name}"
                    await self._alone(what, partial(subscription.expire, ttl_s))

    async def _loaded(self) -> AsyncIterator[Topic]:
        async for topic in loaded_topics(self._broker):
            if is_limited(topic.name):
                yield topic

    async def _alone(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run work for one topic; failures are logged, and do not affect other topics."""
        try:
            await work()
        except (NotAllowed, TopicNotFound, ConsumerBusy):
            pass  # in use again, or deleted meanwhile
        except MagnetarError as error:
            log.warning("%s failed, retrying: %s", what, error)
        except Exception:  # other topics must not be affected
            log.exception("%s failed, retrying", what)
