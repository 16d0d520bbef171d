"""Promises to clients about a topic that a crash must not break."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.wire.position import Position


@dataclass
class Facts:
    """The promises about one topic name, except those that a pending deletion may affect.

    Attributes:
        receipts: bodies of confirmed entries, by position.
        subscriptions: durable subscriptions that certainly exist.
        acknowledged: positions with confirmed acknowledgements, by subscription.
        under_deletion: pending requests that delete the topic.
        leaving: pending requests that delete a subscription, by its name.
        moving: pending requests that move a subscription back.
        dead_ledgers: ids of ledgers deleted with a topic of this name.
        is_there: whether the topic certainly exists.
        removals: number of started or answered requests that delete the topic or one of its subscriptions; a creation
            during which this changes may have been undone.
    """

    receipts: dict[Position, bytes] = field(default_factory=dict)
    subscriptions: set[str] = field(default_factory=set)
    acknowledged: dict[str, set[Position]] = field(default_factory=dict)
    under_deletion: int = 0
    leaving: dict[str, int] = field(default_factory=dict)
    moving: dict[str, int] = field(default_factory=dict)
    dead_ledgers: set[int] = field(default_factory=set)
    is_there: bool = False
    removals: int = 0

    def receipted(self, position: Position, body: bytes) -> None:
        if not self.under_deletion:
            assert position.ledger_id not in self.dead_ledgers, f"{position} is of a ledger that was deleted"
            assert position not in self.receipts, f"two receipts name {position}"
            self.receipts[position] = body
            self.is_there = True

    def subscribed(self, name: str) -> None:
        if not self.under_deletion and not self.leaving.get(name):
            self.subscriptions.add(name)
            self.is_there = True

    def acked(self, name: str, position: Position) -> None:
        if name in self.subscriptions and not self.moving.get(name):
            self.acknowledged.setdefault(name, set()).add(position)

    def subscription_may_go(self, name: str) -> None:
        self.removals += 1
        self.leaving[name] = self.leaving.get(name, 0) + 1
        self.subscriptions.discard(name)
        self.acknowledged.pop(name, None)

    def subscription_answered(self, name: str) -> None:
        self.removals += 1
        self.leaving[name] -= 1

    def subscription_moves(self, name: str) -> None:
        self.moving[name] = self.moving.get(name, 0) + 1
        self.acknowledged.pop(name, None)

    def subscription_moved(self, name: str) -> None:
        self.moving[name] -= 1

    def topic_may_go(self) -> set[int]:
        """Record the start of a deletion, and return the ledgers that it deletes."""
        self.removals += 1
        self.under_deletion += 1
        ledgers = {position.ledger_id for position in self.receipts}
        self.receipts.clear()
        self.subscriptions.clear()
        self.acknowledged.clear()
        self.is_there = False
        return ledgers

    def topic_answered(self, ledgers: set[int], *, is_deleted: bool) -> None:
        self.removals += 1
        self.under_deletion -= 1
        if is_deleted:
            self.dead_ledgers |= ledgers

    def restarted(self) -> None:
        """Record a restart, after which no requests are pending."""
        self.under_deletion = 0
        self.leaving.clear()
        self.moving.clear()
