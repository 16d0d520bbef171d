"""Commands that a client sends to a broker, one constructor each.

Only commands that are sent a few times per producer or consumer are built here; the bursts (SEND, ACK) have encoders
of their own in `bulk`. Commands with more than a handful of fields (PRODUCER, SUBSCRIBE) are filled in by their caller
and only wrapped here.

Source: Pulsar binary protocol, sections Connection, Lookup, Producer and Consumer.
"""

from __future__ import annotations

from collections.abc import Iterable

from .ack_set import AckSet
from .message_id import MessageId, to_data
from .pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandConnect,
    CommandFlow,
    CommandGetLastMessageId,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    CommandPing,
    CommandPong,
    CommandProducer,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSubscribe,
    CommandUnsubscribe,
    FeatureFlags,
    MessageIdData,
)

PROTOCOL_VERSION = 21
"""Highest version of the protocol that this client knows."""

_U64 = (1 << 64) - 1


def connect(client_version: str, proxy_to_broker: str | None) -> BaseCommand:
    """Return CONNECT.

    Args:
        client_version: free text, shown in the broker's statistics.
        proxy_to_broker: ``host:port`` of the broker that is meant, where the connection goes to a proxy.
    """
    command = CommandConnect(
        client_version=client_version,
        protocol_version=PROTOCOL_VERSION,
        auth_method_name="none",
        # A broker may put its own metadata before an entry; the payload reader skips it.
        feature_flags=FeatureFlags(supports_broker_entry_metadata=True),
    )
    if proxy_to_broker is not None:
        command.proxy_to_broker_url = proxy_to_broker
    return BaseCommand(type=BaseCommand.CONNECT, connect=command)


def ping() -> BaseCommand:
    """Return PING."""
    return BaseCommand(type=BaseCommand.PING, ping=CommandPing())


def pong() -> BaseCommand:
    """Return PONG."""
    return BaseCommand(type=BaseCommand.PONG, pong=CommandPong())


def partitioned_metadata(request_id: int, topic: str) -> BaseCommand:
    """Return PARTITIONED_METADATA, which asks how many partitions a topic has."""
    command = CommandPartitionedTopicMetadata(topic=topic, request_id=request_id)
    return BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=command)


def lookup(request_id: int, topic: str, authoritative: bool) -> BaseCommand:
    """Return LOOKUP, which asks for the broker that owns a topic; ``authoritative`` is copied from a redirect."""
    command = CommandLookupTopic(topic=topic, request_id=request_id, authoritative=authoritative)
    return BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=command)


def producer(command: CommandProducer) -> BaseCommand:
    """Return PRODUCER."""
    return BaseCommand(type=BaseCommand.PRODUCER, producer=command)


def close_producer(request_id: int, producer_id: int) -> BaseCommand:
    """Return CLOSE_PRODUCER."""
    command = CommandCloseProducer(producer_id=producer_id, request_id=request_id)
    return BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=command)


def subscribe(command: CommandSubscribe) -> BaseCommand:
    """Return SUBSCRIBE."""
    return BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=command)


def flow(consumer_id: int, permits: int) -> BaseCommand:
    """Return FLOW, which lets the broker send ``permits`` more messages (at least 1)."""
    return BaseCommand(type=BaseCommand.FLOW, flow=CommandFlow(consumer_id=consumer_id, messagePermits=permits))


def redeliver(consumer_id: int, positions: Iterable[tuple[int, int]], epoch: int | None) -> BaseCommand:
    """Return REDELIVER_UNACKNOWLEDGED_MESSAGES for (ledger, entry) positions; none means all."""
    command = CommandRedeliverUnacknowledgedMessages(
        consumer_id=consumer_id,
        message_ids=[MessageIdData(ledgerId=ledger & _U64, entryId=entry & _U64) for ledger, entry in positions],
    )
    if epoch is not None:
        command.consumer_epoch = epoch
    return BaseCommand(type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=command)


def ack_damaged(consumer_id: int, position: tuple[int, int], error: int) -> BaseCommand:
    """Return ACK of an entry that cannot be read; ``error`` is a CommandAck.ValidationError."""
    command = CommandAck(
        consumer_id=consumer_id,
        ack_type=CommandAck.Individual,
        message_id=[MessageIdData(ledgerId=position[0], entryId=position[1])],
        validation_error=error,  # type: ignore[arg-type]  # the protocol's number itself
    )
    return BaseCommand(type=BaseCommand.ACK, ack=command)


def close_consumer(request_id: int, consumer_id: int) -> BaseCommand:
    """Return CLOSE_CONSUMER."""
    command = CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id)
    return BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=command)


def unsubscribe(request_id: int, consumer_id: int) -> BaseCommand:
    """Return UNSUBSCRIBE, which deletes the subscription."""
    command = CommandUnsubscribe(consumer_id=consumer_id, request_id=request_id)
    return BaseCommand(type=BaseCommand.UNSUBSCRIBE, unsubscribe=command)


def seek_to_id(request_id: int, consumer_id: int, message_id: MessageId, ack_set: AckSet) -> BaseCommand:
    """Return SEEK to an entry; ``ack_set`` (empty: all) names the messages of it that are still wanted."""
    data = to_data(MessageId(message_id.ledger_id, message_id.entry_id))
    data.ack_set.extend(ack_set)
    command = CommandSeek(consumer_id=consumer_id, request_id=request_id, message_id=data)
    return BaseCommand(type=BaseCommand.SEEK, seek=command)


def seek_to_time(request_id: int, consumer_id: int, publish_time_ms: int) -> BaseCommand:
    """Return SEEK to the first message published at or after a time."""
    command = CommandSeek(consumer_id=consumer_id, request_id=request_id, message_publish_time=publish_time_ms)
    return BaseCommand(type=BaseCommand.SEEK, seek=command)


def last_message_id(request_id: int, consumer_id: int) -> BaseCommand:
    """Return GET_LAST_MESSAGE_ID."""
    command = CommandGetLastMessageId(consumer_id=consumer_id, request_id=request_id)
    return BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID, getLastMessageId=command)
