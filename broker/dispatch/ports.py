"""Interfaces of subscriptions and consumers, as used by dispatchers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ...wire.ack_set import AckSet
    from ...wire.position import Position
    from ..policies.effective import EffectivePolicies
    from ..policies.rate_limit import RateLimit
    from ..storage.entry import StoredEntry
    from ..storage.port import Cursor
    from .delays import Delays
    from .delivery_memory import DeliveryMemory
    from .key_slots import Range

Delivery = tuple["StoredEntry", int, "AckSet | None"]
"""An entry, its redelivery count, and its unacknowledged messages (None for all)."""


class SubscriptionPort(Protocol):
    """A subscription, as seen by its dispatcher."""

    cursor: Cursor
    """The cursor with the subscription's acknowledgements."""

    is_durable: bool
    """Whether the subscription outlives its consumers; limits on unacknowledged messages apply only then."""

    delays: Delays | None
    """Delayed entries; None unless the type is Shared or Key_Shared."""

    @property
    def policies(self) -> EffectivePolicies:
        """The effective policies of the topic."""

    dispatch_limits: tuple[RateLimit, ...]
    """Dispatch rate limits; empty if unlimited."""

    memory: DeliveryMemory
    """The memory limit for unsent bytes, shared by all connections."""

    def note_throttled(self, limit: RateLimit) -> None:
        """Count that a rate limit delayed dispatch."""

    def fail(self, error: Exception) -> None:
        """Close the consumers, because dispatch failed."""


class ConsumerPort(Protocol):
    """A consumer, as seen by its dispatcher; see `broker.topics.consumer.Consumer`."""

    unacked_messages: int
    messages_redelivered: int

    name: str
    """Consumer name; it determines the active consumer among those with equal priority."""

    priority: int
    """Priority level; 0 is the highest priority."""

    reads_compacted: bool
    """Whether the consumer reads the compacted view of the topic."""

    permits: int
    """Number of messages that may be sent to the consumer."""

    pending: dict[Position, int]
    """The consumer's unacknowledged entries: number of messages by position."""

    is_blocked: bool
    """Whether the consumer has too many unacknowledged messages."""

    @property
    def key_ranges(self) -> Sequence[Range]:
        """Slot ranges requested by the consumer, if any."""

    @property
    def is_available(self) -> bool:
        """Whether the consumer can receive an entry now."""

    def send(self, deliveries: Iterable[Delivery]) -> int:
        """Send entries, deduct them from the permits, and return the number of messages deducted."""

    def hold(self, position: Position, messages: int) -> None:
        """Add an unacknowledged entry."""

    def release(self, position: Position) -> int | None:
        """Remove an unacknowledged entry, and return its number of messages, or None if it was not held."""

    def block_above(self, limit: int) -> None:
        """Block the consumer at ``limit`` unacknowledged messages, and unblock it at half the limit."""

    def unblock(self) -> None:
        """Unblock the consumer, and add the permits that it sent while blocked."""

    def raise_epoch(self, epoch: int) -> None:
        """Stamp later messages with the epoch of a redelivery request."""

    def notify_active(self, is_active: bool) -> None:
        """Notify the consumer whether it is the active consumer."""
