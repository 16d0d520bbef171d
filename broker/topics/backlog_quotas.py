"""Backlog quotas: limits on the backlog of a topic, in bytes or in time.

Quotas are checked when a producer connects, and at a configurable interval for all topics with a quota. Depending on
the policy, exceeding a quota has one of two effects. Either existing producers are closed and new producers are
rejected, or the oldest messages of subscriptions with too much backlog are dropped. In that case, nine tenths of the
quota remain, so that not every new message causes an eviction. Internal cursors are not counted. The periodic check
also finds the oldest message of each topic, for statistics.

Source: Pulsar's BacklogQuotaManager, and the errors of Apache Pulsar 4.0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...errors import MagnetarError, ProducerBlockedQuotaExceeded, ProducerBlockedQuotaExceededRefused
from ..policies.effective import EVICTION, HOLD, Quota
from ..storage.cursors.names import is_internal
from .backlog_age import find_oldest
from .limits import is_limited
from .maintenance import TOPICS_PER_TURN

if TYPE_CHECKING:
    from ..policies.effective import EffectivePolicies
    from .ports import BrokerPort
    from .subscription import Subscription
    from .topic import Topic

log = logging.getLogger(__name__)

EXCEEDED = "Cannot create producer on topic with backlog quota exceeded"
KEPT_SHARE = 0.9
"""Fraction of a quota that remains after an eviction."""


def has_quota(policies: EffectivePolicies) -> bool:
    """Return whether the policies contain a backlog quota."""
    return policies.size_quota.limit_bytes >= 0 or policies.age_quota.limit_s > 0


async def backlog_bytes(subscription: Subscription) -> int:
    """Return the payload bytes from the first unacknowledged entry to the end of the log.

    Cancellation: safe.
    """
    cursor = subscription.cursor
    return await subscription.topic.log.bytes_behind(cursor.mark_delete) if cursor.backlog_entries else 0


async def _is_too_large(subscription: Subscription, limit_bytes: int) -> bool:
    """Return whether a backlog has reached a limit; nothing is read if the whole topic is smaller."""
    is_possible = limit_bytes == 0 or subscription.topic.log.total_bytes >= limit_bytes
    return is_possible and await backlog_bytes(subscription) >= limit_bytes


def _counted(topic: Topic) -> list[Subscription]:
    return [one for one in topic.subscriptions.values() if one.is_durable and not is_internal(one.name)]


async def exceeded(topic: Topic) -> list[Quota]:
    """Return the quotas of a topic that any subscription exceeds.

    Cancellation: safe.
    """
    found = []
    quota = topic.policies.size_quota
    if quota.limit_bytes >= 0:
        for subscription in _counted(topic):
            if await _is_too_large(subscription, quota.limit_bytes):
                found.append(quota)
                break
    quota = topic.policies.age_quota
    if quota.limit_s > 0 and topic.log.entry_count:
        time_ms = topic.broker.now_ms() - quota.limit_s * 1000
        for subscription in _counted(topic):
            cursor = subscription.cursor
            if not cursor.backlog_entries:
                continue  # a search per subscription would be expensive
            oldest = cursor.next_unacknowledged(cursor.mark_delete)
            if oldest <= await topic.log.position_before_age(time_ms, cursor.mark_delete):
                found.append(quota)
                break
    return found


async def check_admits(topic: Topic) -> None:
    """Raise if no new producers are allowed because of the backlog of a topic.

    Raises:
        ProducerBlockedQuotaExceeded: a quota is exceeded; clients wait and retry.
        ProducerBlockedQuotaExceededRefused: a quota is exceeded; clients fail.

    Cancellation: safe.
    """
    if not has_quota(topic.policies) or not is_limited(topic.name):
        return
    for quota in await exceeded(topic):
        if quota.policy == HOLD:
            raise ProducerBlockedQuotaExceeded(EXCEEDED)
        if quota.policy != EVICTION:
            raise ProducerBlockedQuotaExceededRefused(EXCEEDED)


async def enforce(topic: Topic) -> None:
    """Apply the policy of each exceeded quota of a topic.

    Cancellation: safe; call again to complete the work.
    """
    for quota in await exceeded(topic):
        if topic.is_closed:
            return
        if quota.policy != EVICTION:
            producers = [*topic.producers.values(), *topic.producers.waiting]
            if producers:
                log.info("%s: closing %d producers because the backlog quota is exceeded", topic.name, len(producers))
            for producer in producers:
                producer.close_by_broker()
            continue
        for subscription in _counted(topic):
            if quota is topic.policies.size_quota:
                if await _is_too_large(subscription, quota.limit_bytes):
                    kept = int(quota.limit_bytes * KEPT_SHARE)
                    await subscription.drop_up_to(await topic.log.position_leaving(kept))
            else:
                await subscription.expire(quota.limit_s * KEPT_SHARE)


async def enforce_all(broker: BrokerPort, topics: Iterable[Topic]) -> None:
    """Enforce the quotas of all topics, and find the oldest message of each topic.

    Failures of a topic are logged and do not affect other topics.

    Cancellation: safe; call again to complete the work.
    """
    for number, topic in enumerate(list(topics)):
        if number % TOPICS_PER_TURN == TOPICS_PER_TURN - 1:
            await asyncio.sleep(0)
        if broker.storage.failure is not None:
            return  # the storage has logged the failure
        if topic.is_closed or not is_limited(topic.name):
            continue
        try:
            if has_quota(topic.policies):
                await enforce(topic)
            topic.oldest_message = await find_oldest(topic, _counted(topic))
        except MagnetarError as error:
            log.warning("cannot check the backlog quota of %s, retrying: %s", topic.name, error)
        except Exception:  # other topics must not be affected
            log.exception("cannot check the backlog quota of %s, retrying", topic.name)
