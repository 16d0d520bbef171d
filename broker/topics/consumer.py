"""Consumers: permits, unacknowledged entries, and the encoding of entries as frames.

Permits count messages, but whole entries are sent. So permits may become negative, and later permits first make up for
the deficit.

Source: Pulsar binary protocol, sections FLOW permits and MESSAGE.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...wire import ack_set
from ...wire.bulk import MessageHeads, message_frame_head
from ...wire.commands import NO_REQUEST
from ...wire.payload import strip_checksum
from ...wire.pulsar_api_pb2 import (
    CommandActiveConsumerChange,
    CommandCloseConsumer,
    CommandReachedEndOfTopic,
    CommandSubscribe,
    Schema,
)
from ..dispatch.key_slots import ranges_of
from ..times import iso_now
from .rates import Meter

if TYPE_CHECKING:
    from ...wire.position import Position
    from ..dispatch.ports import Delivery
    from .ports import ConnectionPort
    from .subscription import Subscription

SPREADING = (CommandSubscribe.Shared, CommandSubscribe.Key_Shared)
"""Subscription types with many active consumers, which request redelivery of individual entries."""

HEAD_BYTES = 40
"""Approximate size of the frame head before a payload, for limits on unsent bytes."""
IGNORANT_OF_THE_END = ("Pulsar-CPP-", "Pulsar-Go-")
"""Version prefixes of clients that do not support REACHED_END_OF_TOPIC; the Python client uses the C++ prefix."""


class Consumer:
    """A consumer of a connection on a subscription.

    Attributes:
        permits: number of messages that may be sent; negative after an entry that exceeded the permits.
        pending: unacknowledged entries on shared subscriptions: number of messages by position.
        unacked_messages: number of messages in `pending`.
        is_blocked: whether there are too many unacknowledged messages. New permits are then added to `banked_permits`
            until half of the messages are acknowledged.
        takes_any_schema: whether the consumer accepts any schema of the topic.
        reads_compacted: whether the consumer reads the compacted view of the topic.
        epoch: epoch of the last redelivery request (Java clients only), or None.
    """

    def __init__(self, subscription: Subscription, connection: ConnectionPort, command: CommandSubscribe, name: str):
        self.subscription = subscription
        self.connection = connection
        self.name = name
        self.id = command.consumer_id
        self.priority = command.priority_level
        self.metadata = {pair.key: pair.value for pair in command.metadata}
        self.key_ranges = ranges_of(command)
        self.takes_any_schema = command.schema.type == Schema.AutoConsume
        self.reads_compacted = command.read_compacted
        is_stamped = command.subType not in SPREADING and not command.read_compacted
        has_epoch = command.HasField("consumer_epoch") and is_stamped
        self.epoch = command.consumer_epoch if has_epoch else None
        self.partition = subscription.topic.name.partition
        self._heads = MessageHeads(self.id, self.partition, self.epoch)
        self.permits = 0
        self.banked_permits = 0
        self.is_blocked = False
        self.is_detached = False
        self.pending: dict[Position, int] = {}
        self.unacked_messages = 0
        self.messages_out = 0
        self.entries_out = 0
        self.bytes_out = 0
        self.messages_redelivered = 0
        self.messages_acked = 0
        self.last_acked_ms = 0
        self.last_sent_ms = 0
        self.last_flow_ms = 0
        self.connected_since = iso_now()
        self.meter = Meter(4)

    @property
    def counters(self) -> tuple[int, int, int, int]:
        """Number of messages and bytes sent, messages redelivered, and entries acknowledged."""
        return self.messages_out, self.bytes_out, self.messages_redelivered, self.messages_acked

    def __repr__(self) -> str:
        return f"Consumer({self.name!r}, id={self.id}, permits={self.permits}, unacked={self.unacked_messages})"

    @property
    def is_available(self) -> bool:
        """Whether the consumer can receive an entry now."""
        return self.permits > 0 and not self.is_blocked and self.connection.is_writable

    def send(self, deliveries: Iterable[Delivery]) -> int:
        """Send entries with the next write, deduct them from the permits, and return the number deducted."""
        parts: list[bytes] = []
        size = 0
        charged = 0
        entries = 0
        heads = self._heads
        strips = self.connection.protocol_version < 11
        for (position, payload, messages), redeliveries, wanted in deliveries:
            if strips:
                payload = strip_checksum(payload)
            ledger_id, entry_id = position
            payload_bytes = len(payload)
            size += payload_bytes + HEAD_BYTES
            entries += 1
            if wanted is None and not redeliveries:
                parts += heads.parts(ledger_id, entry_id, payload_bytes)
                charged += messages
            else:
                words = wanted or ()
                parts.append(
                    message_frame_head(
                        self.id, ledger_id, entry_id, self.partition, redeliveries, words, self.epoch, payload_bytes
                    )
                )
                charged += messages if wanted is None else min(ack_set.count(wanted), messages)
            parts.append(payload)
        self.permits -= charged
        self.messages_out += charged
        self.entries_out += entries
        self.bytes_out += size - entries * HEAD_BYTES
        self.last_sent_ms = self.subscription.topic.broker.now_ms()
        self.connection.write_many(parts, size)
        return charged

    def raise_epoch(self, epoch: int) -> None:
        """Stamp later messages with the epoch of a redelivery request if it is newer."""
        if self.epoch is None or epoch > self.epoch:
            self.epoch = epoch
            self._heads = MessageHeads(self.id, self.partition, epoch)

    def add_permits(self, permits: int) -> None:
        """Handle FLOW; the permits of a blocked consumer are added later."""
        self.last_flow_ms = self.subscription.topic.broker.now_ms()
        if self.is_blocked:
            self.banked_permits += permits
        else:
            self.permits += permits

    def hold(self, position: Position, messages: int) -> None:
        """Add an unacknowledged entry."""
        self.pending[position] = messages
        self.unacked_messages += messages

    def release(self, position: Position) -> int | None:
        """Remove an unacknowledged entry, and return its number of messages, or None if it was not held."""
        messages = self.pending.pop(position, None)
        if messages is not None:
            self.unacked_messages -= messages
        return messages

    def block_above(self, limit: int) -> None:
        """Block the consumer at ``limit`` unacknowledged messages, and unblock it at half; 0 means unlimited."""
        if 0 < limit <= self.unacked_messages:
            self.is_blocked = True
        elif self.is_blocked and (not limit or self.unacked_messages <= limit // 2):
            self.unblock()

    def unblock(self) -> None:
        """Unblock the consumer, and add the permits that it sent while blocked."""
        self.is_blocked = False
        self.permits += self.banked_permits
        self.banked_permits = 0

    def notify_active(self, is_active: bool) -> None:
        """Notify a failover consumer whether it is the active consumer."""
        if self.connection.protocol_version >= 12:
            self.connection.reply(CommandActiveConsumerChange(consumer_id=self.id, is_active=is_active))

    def notify_end(self) -> None:
        """Notify the consumer of the end of a terminated topic, unless its client would then close the connection."""
        version = self.connection.client_version or ""
        if self.connection.protocol_version >= 9 and not version.startswith(IGNORANT_OF_THE_END):
            self.connection.reply(CommandReachedEndOfTopic(consumer_id=self.id))

    def close_by_broker(self) -> None:
        """Notify the client that the broker closes this consumer, and remove it from the subscription."""
        self.connection.consumers.remove(self)
        self.connection.tell_closed(CommandCloseConsumer(consumer_id=self.id, request_id=NO_REQUEST))
        self.detach()

    def detach(self) -> None:
        """Remove the consumer from its subscription, unless it was already removed."""
        if not self.is_detached:
            self.is_detached = True
            self.subscription.remove_consumer(self)
