"""What dispatchers need of the subscription that they serve and of its consumers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ...wire.ack_set import AckSet
    from ...wire.position import Position
    from ..policies.effective import EffectivePolicies
    from ..policies.rate_limit import RateLimit
    from ..storage.cursors.cursor import Cursor, MemoryCursor
    from ..storage.entry import StoredEntry
    from .delays import Delays
    from .delivery_memory import DeliveryMemory
    from .key_slots import Range

Delivery = tuple["StoredEntry", int, "AckSet | None"]
"""An entry, how often it was redelivered, and which of its messages are still wanted (None: all)."""


class SubscriptionPort(Protocol):
    """A subscription, as its dispatcher sees it."""

    cursor: Cursor | MemoryCursor
    """What is acknowledged."""

    is_durable: bool
    """Whether it outlives its consumers; limits on unacknowledged messages hold for durable ones only."""

    delays: Delays | None
    """What waits for its time; None unless consumers share it."""

    @property
    def policies(self) -> EffectivePolicies:
        """What holds for its topic now."""

    dispatch_limits: tuple[RateLimit, ...]
    """The rates that hold for what it gives out; empty if there are none."""

    memory: DeliveryMemory
    """What waits for the peers of all connections."""

    def note_throttled(self, limit: RateLimit) -> None:
        """Count that one of its rates made it wait."""

    def fail(self, error: Exception) -> None:
        """Close the consumers, as giving out entries failed."""


class ConsumerPort(Protocol):
    """A consumer, as its dispatcher sees it; see `broker.topics.consumer.Consumer`."""

    unacked_messages: int
    messages_redelivered: int

    name: str
    """Decides, after the priority, which consumer is the active one."""

    priority: int
    """0 is served first."""

    reads_compacted: bool
    """Whether it reads the compacted view of the topic."""

    permits: int
    """Messages that it may be sent."""

    pending: dict[Position, int]
    """What it holds unacknowledged."""

    is_blocked: bool
    """Whether it holds too much."""

    @property
    def key_ranges(self) -> Sequence[Range]:
        """Slots of keys that it asked for; none unless it said which."""

    @property
    def is_available(self) -> bool:
        """Whether it may be given an entry now."""

    def send(self, deliveries: Iterable[Delivery]) -> int:
        """Send entries and charge the permits."""

    def hold(self, position: Position, messages: int) -> None:
        """Note that it has an entry that it has not acknowledged."""

    def release(self, position: Position) -> int | None:
        """Note that an entry is acknowledged or goes elsewhere; returns its messages."""

    def block_above(self, limit: int) -> None:
        """Stop at ``limit`` unacknowledged messages, go on at half of it."""

    def unblock(self) -> None:
        """Give it the permits that it asked for while it was blocked."""

    def raise_epoch(self, epoch: int) -> None:
        """Stamp later messages with the epoch of a redelivery request."""

    def notify_active(self, is_active: bool) -> None:
        """Tell whether it is the active one."""
