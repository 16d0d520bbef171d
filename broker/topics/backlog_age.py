"""The oldest unacknowledged message of a topic, as `topics stats` shows it.

It is searched together with the backlog quotas, for topics without a quota too; until the next search its age grows,
even if it is acknowledged meanwhile. Pulsar does the same with ``preciseTimeBasedBacklogQuotaCheck``.

Source: Pulsar's PIP-323.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...wire.payload import open_payload
from ...wire.position import Position

if TYPE_CHECKING:
    from .subscription import Subscription
    from .topic import Topic


@dataclass(frozen=True, slots=True)
class OldestMessage:
    """The oldest message of all backlogs of a topic.

    Attributes:
        position: of its entry.
        publish_time_ms: of its entry, by the clock of its producer.
        subscription: the subscription that is furthest behind.
    """

    position: Position
    publish_time_ms: int
    subscription: str

    def age_s(self, now_ms: int) -> int:
        """Return its age in whole seconds; 0 if its producer is ahead of this broker's clock."""
        return max(0, now_ms - self.publish_time_ms) // 1000


async def find_oldest(topic: Topic, subscriptions: Iterable[Subscription]) -> OldestMessage | None:
    """Return the oldest message that one of the subscriptions has not acknowledged, or None without a backlog.

    An entry is read only if it differs from the topic's `oldest_message`.

    Cancellation: safe.
    """
    behind = [one for one in subscriptions if one.cursor.backlog_entries]
    if not behind:
        return None
    slowest = min(behind, key=lambda one: (one.cursor.mark_delete, one.name))
    position = slowest.cursor.next_unacknowledged(slowest.cursor.mark_delete)
    known = topic.oldest_message
    if known is not None and known.position == position:
        return replace(known, subscription=slowest.name)
    entries = topic.log.read(position, 1, 1)
    if entries is None:
        entries = await topic.log.load(position, 1, 1)
    if not entries:
        return None  # retention dropped it meanwhile
    return OldestMessage(position, open_payload(entries[0].payload)[0].publish_time, slowest.name)
