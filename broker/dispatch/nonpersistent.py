"""Dispatchers for non-persistent topics: an entry goes to a consumer at once, or is dropped.

Entries are never read back, held or redelivered. The active consumer and the round-robin order are chosen as for
persistent topics, except that failover does not wait, since there are no acknowledgements to wait for.

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
    from ..storage.port import Log
    from .ports import SubscriptionPort


class DirectSingleActive(SingleActiveDispatcher[C]):
    """Chooses the active consumer of an Exclusive or Failover subscription."""

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
        """Return the consumer for an entry, or None if the active consumer cannot take it."""
        consumer = self.active
        if consumer is None or not consumer.is_available:
            return None
        if self._keeps_keys(consumer) and not has_key(consumer.key_ranges, payload):
            return None
        return consumer

    def redeliver(self, consumer: C, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Redeliver nothing; later messages carry the epoch of the request."""
        if epoch is not None:
            consumer.raise_epoch(epoch)

    def _run(self) -> None:
        """Read nothing."""


class DirectShared(SharedDispatcher[C]):
    """Chooses the next consumer of a Shared subscription."""

    def choose(self, payload: bytes) -> C | None:
        """Return the consumer for an entry, or None if none is available."""
        return self._order.next()

    def redeliver(self, consumer: C, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Redeliver nothing."""

    def _run(self) -> None:
        """Read nothing."""


class DirectKeyShared(KeySharedDispatcher[C]):
    """Chooses the owner of a key on a Key_Shared subscription."""

    def choose(self, payload: bytes) -> C | None:
        """Return the consumer for an entry, or None if its key has no owner or the owner is not available."""
        consumer = self._keys.owner(self._selector.slot(entry_key(payload)))
        return consumer if consumer is not None and consumer.is_available else None

    def redeliver(self, consumer: C, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Redeliver nothing."""

    def _run(self) -> None:
        """Read nothing."""
