"""The dispatcher of Key_Shared subscriptions: all entries with a key go to the same consumer, ordered by `KeyOrder`.

Entries that cannot be dispatched yet are tracked by position and reread later. Above a limit of waiting entries, no new
entries are read.

Source: Pulsar binary protocol, section Key_Shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...errors import ConsumerBusy
from ...wire import ack_set
from ...wire.batch import MIN_MESSAGE_BYTES
from ...wire.position import Position
from ...wire.pulsar_api_pb2 import CommandSubscribe, KeySharedMode
from .dispatcher import C, limit_message_count
from .key_order import Draining, KeyOrder
from .key_slots import HashRing, Range, Selector, SplitRanges, StickyRanges, entry_key
from .shared import SharedDispatcher

if TYPE_CHECKING:
    from ...tasks import TaskSet
    from ..config import BrokerConfig
    from ..storage.entry import StoredEntry
    from ..storage.port import Log
    from .ports import Delivery, SubscriptionPort


class KeySharedPolicy(NamedTuple):
    """How the consumers of a subscription share keys; all consumers must have the same policy."""

    mode: int = KeySharedMode.AUTO_SPLIT
    allows_out_of_order: bool = False

    @property
    def mode_name(self) -> str:
        """Name of the mode: AUTO_SPLIT or STICKY."""
        return KeySharedMode.Name(self.mode)

    def check_same(self, other: KeySharedPolicy) -> None:
        """Raise ConsumerBusy if the policy of a joining consumer differs."""
        if self.mode != other.mode:
            raise ConsumerBusy(
                f"Subscription is of different type. Active subscription key_shared mode of '{self.mode_name}' is"
                f" different than the connecting consumer's key_shared mode '{other.mode_name}'."
            )
        if self.allows_out_of_order != other.allows_out_of_order:
            raise ConsumerBusy(
                "Subscription is of different type. Active subscription's allowOutOfOrderDelivery of"
                f" '{_word(self.allows_out_of_order)}' is different than the connecting consumer's"
                f" '{_word(other.allows_out_of_order)}'."
            )


def _word(flag: bool) -> str:
    return "true" if flag else "false"


def policy_of(command: CommandSubscribe) -> KeySharedPolicy:
    """Return the policy requested by a consumer."""
    return KeySharedPolicy(command.keySharedMeta.keySharedMode, command.keySharedMeta.allowOutOfOrderDelivery)


class KeySharedDispatcher(SharedDispatcher[C]):
    """Dispatches the entries of a subscription to the owners of their keys.

    Attributes:
        policy: policy of all consumers.
    """

    KIND = CommandSubscribe.Key_Shared

    def __init__(
        self,
        subscription: SubscriptionPort,
        log: Log,
        config: BrokerConfig,
        tasks: TaskSet,
        policy: KeySharedPolicy,
    ):
        super().__init__(subscription, log, config, tasks)
        self.policy = policy
        self._selector: Selector[C]
        if policy.mode == KeySharedMode.STICKY:
            self._selector = StickyRanges()
        elif config.key_shared_consistent_hashing:
            self._selector = HashRing(config.key_shared_points)
        else:
            self._selector = SplitRanges()
        self._keys: KeyOrder[C] = KeyOrder(self._selector, keeps_order=not policy.allows_out_of_order)

    @property
    def replay_entries(self) -> int:
        """Number of entries that wait for dispatch or redelivery."""
        return self._keys.waiting + len(self.replay)

    @property
    def ranges(self) -> dict[C, list[Range]]:
        """The slot ranges of each consumer, in ascending order."""
        found: dict[C, list[Range]] = {}
        for consumer, each in self._selector.ranges():
            found.setdefault(consumer, []).append(each)
        return found

    @property
    def draining(self) -> dict[C, list[Draining]]:
        """The draining slots, grouped by old consumer."""
        return self._keys.draining()

    @property
    def cleared(self) -> dict[C, int]:
        """The number of former slots of each consumer that have drained."""
        return self._keys.cleared

    def has_for(self, consumer: C) -> bool:
        """Return whether a waiting entry can be dispatched to the consumer now."""
        return self._keys.head(consumer) is not None

    # Consumers

    def conflict(self, ranges: Sequence[Range]) -> C | None:
        """Return the consumer whose keys conflict with ``ranges``, or None if a consumer with these ranges may join.

        Raises:
            ConsumerAssignError: no keys can be assigned to the new consumer.
        """
        return self._selector.conflict(ranges)

    def add(self, consumer: C) -> None:
        """Add a consumer; the first consumer starts at the first unacknowledged entry.

        Raises:
            ConsumerAssignError: no slots can be assigned to the consumer; nothing has changed.
        """
        if not len(self._order):
            self._go_back()
        self._keys.add(consumer)
        self._order.add(consumer)

    def remove(self, consumer: C) -> None:
        """Remove a consumer; its keys and held entries go to other consumers."""
        if consumer in self._order:
            self._keys.remove(consumer, consumer.pending)
        super().remove(consumer)

    def _go_back(self) -> None:
        super()._go_back()
        self._keys.clear()

    def _give_back(self, positions: Iterable[Position], *, counted: bool) -> None:
        if counted:  # otherwise, the consumer left, which is handled by `KeyOrder.remove`
            self.replay.count_again(positions)
            for position in positions:
                self._keys.come_back(position)

    # Acknowledgements

    def _release(self, consumer: C, position: Position) -> int | None:
        messages = consumer.release(position)
        if messages is not None and self._keys.release(position):
            self.wake()
        return messages

    def _forget(self, position: Position) -> None:
        self.replay.forget(position)
        self._keys.forget(position)

    def _forget_up_to(self, position: Position) -> None:
        self.replay.forget_up_to(position)
        self._keys.forget_up_to(position)

    # Dispatch

    def _give_some(self, limit: int, most_bytes: int) -> bool:
        return (
            self._give_waiting(limit, most_bytes)
            or self._give_due(limit, most_bytes)
            or self._give_new(limit, most_bytes)
        )

    def _give_waiting(self, limit: int, most_bytes: int) -> bool:
        """Dispatch waiting entries to available consumers, and return whether any entry was removed from a queue."""
        ready = [consumer for consumer in self._order if consumer.is_available]
        heads = [head for consumer in ready if (head := self._keys.head(consumer)) is not None]
        if not heads:
            return False
        entries = self._replay_reader.read(min(heads), self._config.max_read_entries, most_bytes)
        if not entries:
            return False
        found = {entry.position: entry for entry in entries}
        reached = entries[-1].position
        moved = False
        for consumer in ready:
            room = self._permits_of(consumer)
            deliveries: list[Delivery] = []
            while (
                room > 0
                and len(deliveries) < limit
                and (head := self._keys.head(consumer)) is not None
                and head <= reached
            ):
                moved = True
                slot = self._keys.slot_of(self._keys.take(consumer))
                entry = found.get(head)
                # If the log skipped this entry, it was deleted and can no longer be dispatched.
                if entry is None or not self._is_wanted(entry):
                    self._forget(head)
                else:
                    room -= self._give(consumer, entry, slot, room, deliveries)
            self._send(consumer, deliveries)
            limit -= len(deliveries)
        return moved

    def _give_due(self, limit: int, most_bytes: int) -> bool:
        """Dispatch or queue due delayed entries, and return whether there were any."""
        if not self.replay:
            return False
        entries = self._read_replay(limit, most_bytes)
        for entry in entries:
            self.replay.discard(entry.position)
        self._spread_keys(entries)
        return bool(entries)

    def _give_new(self, limit: int, most_bytes: int) -> bool:
        """Dispatch or queue new entries of the log, and return whether there were any."""
        config = self._config
        most = min(config.key_shared_look_ahead_per_consumer * len(self._order), config.key_shared_look_ahead)
        if self._keys.waiting >= most:
            return False
        entries = self._read_new(limit, most_bytes)
        if entries:
            last = entries[-1].position
            self._next = Position(last[0], last[1] + 1)
            self._spread_keys(entries)
        return bool(entries)

    def _spread_keys(self, entries: list[StoredEntry]) -> None:
        keys = self._keys
        slot_of = self._selector.slot
        turn_of = keys.turn_of
        rooms: dict[C, int] = {}
        shares: dict[C, list[Delivery]] = {}
        for entry in entries:
            if not self._is_wanted(entry):
                self._forget(entry.position)
                continue
            slot = slot_of(entry_key(entry.payload))
            consumer = turn_of(slot)
            if consumer is not None:
                room = rooms.get(consumer)
                if room is None:
                    room = rooms[consumer] = self._permits_of(consumer)
                    shares[consumer] = []
                if room > 0:
                    rooms[consumer] = room - self._give(consumer, entry, slot, room, shares[consumer])
                    continue
            keys.wait(entry.position, slot)
        for consumer, deliveries in shares.items():
            self._send(consumer, deliveries)

    def _permits_of(self, consumer: C) -> int:
        """Return the number of messages that can be sent to a consumer now."""
        return min(consumer.permits, self._unacked_allowance(consumer)) if consumer.is_available else 0

    def _is_wanted(self, entry: StoredEntry) -> bool:
        """Return whether an entry can be dispatched, because it is neither acknowledged nor delayed."""
        cursor = self._subscription.cursor
        position = entry.position
        if (cursor.has_holes or position <= cursor.mark_delete) and cursor.is_acknowledged(position):
            return False
        if position[0] not in self._log.delayed_ledgers:
            return True
        delays = self._subscription.delays
        return delays is None or not delays.holds_back(entry)

    def _give(self, consumer: C, entry: StoredEntry, slot: int, room: int, deliveries: list[Delivery]) -> int:
        """Add an entry to a consumer's deliveries, and return its number of messages."""
        cursor = self._subscription.cursor
        position, payload, messages = entry
        if messages > room or not 0 < messages * MIN_MESSAGE_BYTES <= len(payload):
            entry = limit_message_count(entry, self._config.max_message_bytes)
            messages = entry.messages
        wanted = cursor.remaining(position) if cursor.has_holes or position <= cursor.mark_delete else None
        if wanted is not None:
            messages = min(ack_set.count(wanted), messages)
        self._keys.hold(consumer, position, slot)
        consumer.hold(position, messages)
        self.unacked_messages += messages
        deliveries.append((entry, self.replay.count(position), wanted))
        return messages

    def _send(self, consumer: C, deliveries: list[Delivery]) -> None:
        if not deliveries:
            return
        self._charge(deliveries, consumer.send(deliveries))
        if self._subscription.is_durable:
            consumer.block_above(self._subscription.policies.max_unacked_per_consumer)
            self._check_block()
