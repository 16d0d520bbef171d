"""Dispatchers of non-persistent topics: an entry is sent to a consumer immediately or dropped.

Entries are never reread, held or redelivered. The active consumer and the round-robin order are determined as for
persistent topics, but failover has no delay, since there are no acknowledgements to wait for.

Source: Pulsar binary protocol, section Non-persistent topics; the `NonPersistentDispatcher…` classes of Pulsar 4.0.
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
    from ..storage.port import Log
    from .ports import SubscriptionPort


class DirectSingleActive(SingleActiveDispatcher[C]):
    """The dispatcher of Exclusive and Failover subscriptions, which selects the active consumer."""

    def __init__(
        self,
        subscription: SubscriptionPort,
        kind: int,
        topic: TopicName,
        log: Log,
        config: BrokerConfig,
        tasks: TaskSet,
    ) -> None:
        super().__init__(subscription, kind, topic, log, replace(config, failover_delay_s=0.0), tasks)

    def choose(self, payload: bytes) -> C | None:
        """Return the active consumer, or None if it cannot receive the entry."""
        consumer = self.active
        if consumer is None or not consumer.is_available:
            return None
        if self._keeps_keys(consumer) and not has_key(consumer.key_ranges, payload):
            return None
        return consumer

    def redeliver(self, consumer: C, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Redeliver nothing, but stamp later messages with the epoch of the request."""
        if epoch is not None:
            consumer.raise_epoch(epoch)

    def _run(self) -> None:
        """Do nothing: entries are dispatched as they are published."""


class DirectShared(SharedDispatcher[C]):
    """The dispatcher of Shared subscriptions, which selects consumers in turn."""

    def choose(self, payload: bytes) -> C | None:
        """Return the next available consumer, or None."""
        return self._order.next()

    def redeliver(self, consumer: C, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Do nothing: entries are not stored."""

    def _run(self) -> None:
        """Do nothing: entries are dispatched as they are published."""


class DirectKeyShared(KeySharedDispatcher[C]):
    """The dispatcher of Key_Shared subscriptions, which selects the owner of a key."""

    def choose(self, payload: bytes) -> C | None:
        """Return the owner of the entry's key, or None without an available owner."""
        consumer = self._keys.owner(self._selector.slot(entry_key(payload)))
        return consumer if consumer is not None and consumer.is_available else None

    def redeliver(self, consumer: C, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Do nothing: entries are not stored."""

    def _run(self) -> None:
        """Do nothing: entries are dispatched as they are published."""
