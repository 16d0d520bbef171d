"""Interfaces that dispatchers need from their subscription and its consumers."""

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
"""An entry, its redelivery count, and the messages of it that are still wanted (None: all)."""


class SubscriptionPort(Protocol):
    """A subscription as seen by its dispatcher."""

    cursor: Cursor
    """Its acknowledgements."""

    is_durable: bool
    """Whether it outlives its consumers; only durable ones have limits on unacknowledged messages."""

    delays: Delays | None
    """Delayed entries; None unless consumers share the subscription."""

    @property
    def policies(self) -> EffectivePolicies:
        """The effective policies of its topic."""

    dispatch_limits: tuple[RateLimit, ...]
    """The dispatch rate limits; empty if unlimited."""

    memory: DeliveryMemory
    """The memory for unsent bytes of all connections."""

    def note_throttled(self, limit: RateLimit) -> None:
        """Count that a rate limit delayed dispatch."""

    def fail(self, error: Exception) -> None:
        """Close the consumers, as dispatch failed."""


class ConsumerPort(Protocol):
    """A consumer as seen by its dispatcher; see `broker.topics.consumer.Consumer`."""

    unacked_messages: int
    messages_redelivered: int

    name: str
    """Decides after the priority which consumer is active."""

    priority: int
    """0 is served first."""

    reads_compacted: bool
    """Whether it reads the compacted view of the topic."""

    permits: int
    """Messages that it may be sent."""

    pending: dict[Position, int]
    """Its unacknowledged entries."""

    is_blocked: bool
    """Whether it has too many unacknowledged messages."""

    @property
    def key_ranges(self) -> Sequence[Range]:
        """Key slots that it requested; may be empty."""

    @property
    def is_available(self) -> bool:
        """Whether it can receive an entry now."""

    def send(self, deliveries: Iterable[Delivery]) -> int:
        """Send entries and charge the permits."""

    def hold(self, position: Position, messages: int) -> None:
        """Record an unacknowledged entry."""

    def release(self, position: Position) -> int | None:
        """Record that an entry was acknowledged or reassigned; returns its messages."""

    def block_above(self, limit: int) -> None:
        """Stop at ``limit`` unacknowledged messages, continue at half of it."""

    def unblock(self) -> None:
        """Add the permits that it requested while blocked."""

    def raise_epoch(self, epoch: int) -> None:
        """Stamp later messages with the epoch of a redelivery request."""

    def notify_active(self, is_active: bool) -> None:
        """Notify the consumer whether it is the active one."""
