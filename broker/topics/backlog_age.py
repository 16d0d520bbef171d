"""The oldest unacknowledged message of a topic, for `topics stats`.

The periodic backlog quota check finds this message, for topics without a quota as well. Until the next check, its age
increases even if the message is acknowledged, as in Pulsar with ``preciseTimeBasedBacklogQuotaCheck``.

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
    """The oldest message in all backlogs of a topic.

    Attributes:
        position: position of the entry.
        publish_time_ms: publish time of the entry, set by the producer's clock.
        subscription: name of the subscription that is furthest behind.
    """

    position: Position
    publish_time_ms: int
    subscription: str

    def age_s(self, now_ms: int) -> int:
        """Return the age of the message in whole seconds; 0 if the producer's clock is ahead."""
        return max(0, now_ms - self.publish_time_ms) // 1000


async def find_oldest(topic: Topic, subscriptions: Iterable[Subscription]) -> OldestMessage | None:
    """Return the oldest message that any of the subscriptions has not acknowledged, or None without a backlog.

    The entry is only read if it is not the topic's current `oldest_message`.

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
        return None  # dropped by retention meanwhile
    return OldestMessage(position, open_payload(entries[0].payload)[0].publish_time, slowest.name)
