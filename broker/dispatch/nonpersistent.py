"""Dispatchers of subscriptions of non-persistent topics: an entry is given to a consumer at once, or to nobody.

Nothing is read, held or given out again. Who is the active consumer, and whose turn it is, is decided as for stored
entries; only that a failover does not wait, for there are no acknowledgements to wait for.

Source: Pulsar binary protocol, section Non-persistent topics; `NonPersistentDispatcher…` of Pulsar 4.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...wire.position import Position
from .dispatcher import C
from .key_shared import KeySharedDispatcher
from .key_slots import entry_key, has_key
from .shared import SharedDispatcher
from .single_active import SingleActiveDispatcher

if TYPE_CHECKING:
    from ...tasks import TaskSet
    from ...wire.topic_name import TopicName
    from ..config import BrokerConfig
    from ..storage.topic_log import TopicLog
    from .ports import SubscriptionPort


class DirectSingleActive(SingleActiveDispatcher[C]):
    """Knows the active consumer of an Exclusive or Failover subscription."""

    def __init__(
        self,
        subscription: SubscriptionPort,
        kind: int,
        topic: TopicName,
        log: TopicLog,
        config: BrokerConfig,
        tasks: TaskSet,
    ) -> None:
        super().__init__(subscription, kind, topic, log, replace(config, failover_delay_s=0.0), tasks)

    def choose(self, payload: bytes) -> C | None:
        """Return who gets an entry now, None if nobody takes it."""
        consumer = self.active
        if consumer is None or not consumer.is_available:
            return None
        if self._keeps_keys(consumer) and not has_key(consumer.key_ranges, payload):
            return None
        return consumer

    def redeliver(self, consumer: C, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Give out nothing again; later messages have the epoch of the request."""
        if epoch is not None:
            consumer.raise_epoch(epoch)

    def _run(self) -> None:
        """Read nothing."""


class DirectShared(SharedDispatcher[C]):
    """Knows whose turn it is on a Shared subscription."""

    def choose(self, payload: bytes) -> C | None:
        """Return who gets an entry now, None if nobody takes it."""
        return self._order.next()

    def redeliver(self, consumer: C, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Give out nothing again."""

    def _run(self) -> None:
        """Read nothing."""


class DirectKeyShared(KeySharedDispatcher[C]):
    """Knows whose key it is on a Key_Shared subscription."""

    def choose(self, payload: bytes) -> C | None:
        """Return who gets an entry now, None if its consumer does not take it, or nobody has its key."""
        consumer = self._keys.owner(self._selector.slot(entry_key(payload)))
        return consumer if consumer is not None and consumer.is_available else None

    def redeliver(self, consumer: C, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Give out nothing again."""

    def _run(self) -> None:
        """Read nothing."""
