"""Handlers for SUBSCRIBE, FLOW, SEEK and other consumer commands. `ack_commands` handles ACK and redelivery.

Source: Pulsar binary protocol, section Consumer.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from ...errors import (
    ConsumerAssignError,
    ConsumerBusy,
    MetadataError,
    NotAllowed,
    ProducerBusy,
    ProtocolError,
    ServiceNotReady,
    StorageError,
    SubscriptionNotFound,
    UnknownBrokerError,
)
from ...wire import pulsar_api_pb2 as pb
from ...wire.message_id import MessageId, to_data
from ...wire.payload import open_payload
from ...wire.position import EARLIEST, Position
from ...wire.topic_name import parse_topic_name
from ..schemas.model import from_wire
from ..storage.cursors.names import check_name, check_properties, check_size, check_text, is_internal
from ..topics.compaction_rules import last_batch_index
from ..topics.consumer import Consumer
from ..topics.limits import check_consumers, check_subscriptions, check_type
from ..topics.subscription import Subscription, kind_name
from ..topics.topic import Topic
from ..topics.topic_schemas import admit_consumer
from .ack_commands import position_of
from .authorization import audit_created

if TYPE_CHECKING:
    from .connection import Connection


def subscribe(connection: Connection, command: pb.CommandSubscribe) -> None:
    """Create a consumer, or confirm an existing one."""
    id_ = command.consumer_id
    if id_ in connection.consumers:
        connection.succeed(command.request_id)
    elif id_ in connection.consumers.opening:
        raise ServiceNotReady("Consumer is already present on the connection")
    else:
        metadata = ((pair.key, pair.value) for pair in command.metadata)
        max_bytes = connection.config.max_consumer_metadata_bytes
        check_size("consumer properties", metadata, max_bytes, "maxConsumerMetadataSize")
        connection.consumers.begin(id_, connection.start(command.request_id, _create(connection, command)))


async def _create(connection: Connection, command: pb.CommandSubscribe) -> None:
    broker = connection.broker
    _check(command)
    name = parse_topic_name(command.topic)
    check_type(broker.namespaces.effective(name), name, command.subType)
    is_new = connection.roles is not None and not broker.has_topic(name)
    topic = await broker.topic(name, create=command.force_topic_creation)
    if is_new:
        audit_created(connection, name)
    await admit_consumer(topic, from_wire(command.schema, broker.now_ms()) if command.HasField("schema") else None)
    subscription = await _subscription(connection, topic, command)
    with subscription.joining():
        await subscription.ready()
        rollback_s = command.start_message_rollback_duration_sec
        if rollback_s > 0 and topic.name.is_persistent:
            await subscription.reset_to_time(broker.now_ms() - rollback_s * 1000)
        while (holder := subscription.holder(command)) is not None:
            if await holder.connection.is_alive():
                if command.subType == pb.CommandSubscribe.Key_Shared:
                    raise ConsumerAssignError(f"Range conflict with consumer {holder.name}")
                raise ConsumerBusy("Exclusive consumer is already connected")
            holder.detach()  # its connection is being closed, which may take a while
        topic.check_has(subscription)  # no await from here on: a client that receives SUCCESS must be attached
        _join(connection, subscription, command)


def _join(connection: Connection, subscription: Subscription, command: pb.CommandSubscribe) -> None:
    """Attach a new consumer and send the response. Does not await, so that earlier checks still hold."""
    if connection.is_closed:
        # The connection was lost and released meanwhile: a consumer created now would never be removed.
        raise ConnectionResetError(f"{connection} was lost while subscribing to {subscription.topic.name}")
    subscription.check_open()
    topic = subscription.topic
    check_consumers(topic.policies, topic.name, lambda: _count_consumers(topic), len(subscription.consumers))
    limit = topic.subscribe_limit
    host = connection.address.rpartition(":")[0]
    if limit is not None and not limit.admits((host, command.consumer_name, command.consumer_id)):
        raise NotAllowed("Subscribe limited by subscribe rate limit per consumer.")
    consumer_name = command.consumer_name or secrets.token_hex(5)
    consumer = Consumer(subscription, connection, command, consumer_name)
    connection.succeed(command.request_id)  # before the first message
    connection.consumers.add(consumer)
    topic.joins += 1
    subscription.add_consumer(consumer, command)


def _count_consumers(topic: Topic) -> int:
    return sum(len(one.consumers) for one in topic.subscriptions.values())


def _check(command: pb.CommandSubscribe) -> None:
    check_text("topic name", command.topic)
    check_name("subscription name", command.subscription)
    check_name("consumer name", command.consumer_name)
    check_properties("subscription property", {pair.key: pair.value for pair in command.subscription_properties})
    check_properties("consumer property", {pair.key: pair.value for pair in command.metadata})
    if not command.subscription.strip():
        raise ProducerBusy("Empty subscription name")
    if is_internal(command.subscription):
        raise ProducerBusy("Subscription with reserved subscription name attempted")
    if command.read_compacted and command.subType not in (pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Failover):
        raise NotAllowed("readCompacted only allowed on failover or exclusive subscriptions")


async def _subscription(connection: Connection, topic: Topic, command: pb.CommandSubscribe) -> Subscription:
    """Return the subscription, creating it if needed."""
    name = command.subscription
    if not topic.name.is_persistent:
        properties = {pair.key: pair.value for pair in command.subscription_properties}
        return await topic.create_subscription(name, "latest", properties, compacted=command.read_compacted)
    existing = topic.subscriptions.get(name)
    if existing is not None and existing.is_durable != command.durable:
        kind = "durable" if existing.is_durable else "non-durable"
        raise NotAllowed(f"Subscription {name} already exists and is {kind}")
    if not command.durable:
        return existing or _non_durable(topic, command)
    if existing is None and not connection.broker.namespaces.auto_subscription_creation(topic.name):
        raise SubscriptionNotFound("Subscription does not exist")
    position = "earliest" if command.initialPosition == pb.CommandSubscribe.Earliest else "latest"
    properties = {pair.key: pair.value for pair in command.subscription_properties}
    subscription = await topic.create_subscription(
        name,
        position,  # type: ignore[arg-type]
        properties,
        compacted=command.read_compacted,
    )
    if command.replicate_subscription_state:
        await subscription.set_replicated(True)
    return subscription


def _non_durable(topic: Topic, command: pb.CommandSubscribe) -> Subscription:
    """Return a new in-memory subscription, which starts at the consumer's start message, inclusive.

    Without a start message, or if that is after the last entry, the subscription starts at the initial position.
    """
    topic.check_loaded()
    check_subscriptions(topic.policies, topic.name, len(topic.subscriptions))
    start = topic.start_of("latest")
    wanted = position_of(command.start_message_id) if command.HasField("start_message_id") else None
    if wanted is not None and wanted <= topic.log.last_confirmed:
        start = topic.start_of(wanted, compacted=command.read_compacted)
    elif command.initialPosition == pb.CommandSubscribe.Earliest:
        start = topic.start_of("earliest", compacted=command.read_compacted)
    properties = {pair.key: pair.value for pair in command.subscription_properties}
    check_size("subscription properties", properties.items())
    cursor = topic.log.memory_cursor(command.subscription, start, properties)
    subscription = topic.subscriptions[command.subscription] = Subscription(topic, cursor, is_durable=False)
    return subscription


def flow(connection: Connection, command: pb.CommandFlow) -> None:
    """Add permits. Ignored for an unknown consumer."""
    consumer = connection.consumers.get(command.consumer_id)
    if consumer is None:
        return
    if not command.messagePermits:
        raise ProtocolError(f"FLOW with 0 permits for consumer {command.consumer_id}")
    consumer.add_permits(command.messagePermits)
    consumer.subscription.wake()


def unsubscribe(connection: Connection, command: pb.CommandUnsubscribe) -> None:
    """Delete a consumer's subscription."""
    connection.start(command.request_id, _unsubscribe(connection, _consumer(connection, command), command))


async def _unsubscribe(connection: Connection, consumer: Consumer, command: pb.CommandUnsubscribe) -> None:
    await consumer.subscription.unsubscribe(consumer, force=command.force)
    connection.succeed(command.request_id)


def _consumer(
    connection: Connection, command: pb.CommandUnsubscribe | pb.CommandSeek | pb.CommandGetLastMessageId
) -> Consumer:
    consumer = connection.consumers.get(command.consumer_id)
    if consumer is None:
        raise MetadataError("Consumer not found")
    return consumer


def close_consumer(connection: Connection, command: pb.CommandCloseConsumer) -> None:
    """Close a consumer. An unknown id counts as closed."""
    consumer = connection.consumers.close(command.consumer_id)
    if consumer is not None:
        consumer.detach()
    connection.succeed(command.request_id)


def seek(connection: Connection, command: pb.CommandSeek) -> None:
    """Reset a consumer's subscription to an entry or a time."""
    consumer = _consumer(connection, command)
    if not command.HasField("message_id") and not command.HasField("message_publish_time"):
        raise MetadataError("Message id and message publish time were not present")
    connection.start(command.request_id, _seek(connection, consumer, command))


async def _seek(connection: Connection, consumer: Consumer, command: pb.CommandSeek) -> None:
    subscription = consumer.subscription
    topic = subscription.topic
    if not topic.name.is_persistent:
        connection.succeed(command.request_id)  # as in Pulsar, although there is nothing to reset
        return
    words = None
    try:
        if command.HasField("message_id"):
            mark = topic.start_of(position_of(command.message_id), compacted=consumer.reads_compacted)
            # The compacted view may have an entry there that the log no longer has.
            behind = Position(mark.ledger_id, mark.entry_id + 1)
            position = behind if consumer.reads_compacted else topic.log.next_position(mark)
            if connection.config.acknowledge_inside_batches and position == position_of(command.message_id):
                words = command.message_id.ack_set or None
        else:
            mark = await topic.log.position_before_time(command.message_publish_time)
            position = topic.log.next_position(mark)
            if consumer.reads_compacted and position <= topic.log.first_position:
                position = topic.log.first_compacted
        await subscription.seek(position, words)
    except StorageError as error:
        raise UnknownBrokerError(f"Error when resetting subscription: {error}") from error
    connection.succeed(command.request_id)


def last_message_id(connection: Connection, command: pb.CommandGetLastMessageId) -> None:
    """Send the last message id of a consumer's topic."""
    consumer = _consumer(connection, command)
    if not consumer.subscription.topic.name.is_persistent:
        raise UnknownBrokerError("Failed to recover Transaction Buffer.")  # the error that Pulsar returns
    connection.start(command.request_id, _last_message_id(connection, consumer, command.request_id))


async def _last_message_id(connection: Connection, consumer: Consumer, request_id: int) -> None:
    topic = consumer.subscription.topic
    end = topic.log.last_confirmed
    last, batch_index = EARLIEST, -1
    view = topic.log.view if consumer.reads_compacted else None
    if view is not None and end <= view.horizon:
        entry = await view.last()
        if entry is not None:
            last, batch_index = entry.position, last_batch_index(entry.payload, connection.config.max_message_bytes)
    elif topic.log.entry_count:
        entries = await topic.log.load(end, 1, 1)
        if entries and entries[0].position == end:  # else it was deleted meanwhile
            last = end
            metadata, _ = open_payload(entries[0].payload)
            if metadata.HasField("num_messages_in_batch"):
                batch_index = metadata.num_messages_in_batch - 1
    message_id = to_data(MessageId(*last))
    message_id.partition, message_id.batch_index = topic.name.partition, batch_index
    answer = pb.CommandGetLastMessageIdResponse(
        last_message_id=message_id,
        request_id=request_id,
        consumer_mark_delete_position=to_data(MessageId(*consumer.subscription.cursor.mark_delete)),
    )
    connection.reply(answer)


def consumer_stats(connection: Connection, command: pb.CommandConsumerStats) -> None:
    """Send a consumer's statistics, with rates averaged over the last period."""
    consumer = connection.consumers.get(command.consumer_id)
    if consumer is None:
        raise ProtocolError(f"CONSUMER_STATS for unknown consumer {command.consumer_id}")
    subscription = consumer.subscription
    messages, bytes_, redelivered, acked = consumer.meter.rates
    answer = pb.CommandConsumerStatsResponse(
        request_id=command.request_id,
        msgRateOut=messages,
        msgThroughputOut=bytes_,
        msgRateRedeliver=redelivered,
        consumerName=consumer.name,
        availablePermits=consumer.permits & (1 << 64) - 1,
        unackedMessages=consumer.unacked_messages,
        blockedConsumerOnUnackedMsgs=consumer.is_blocked,
        address=consumer.connection.address,
        connectedSince=consumer.connected_since,
        type=kind_name(subscription.kind),
        msgRateExpired=0.0,
        msgBacklog=subscription.cursor.backlog_entries,
        messageAckRate=acked,
    )
    connection.reply(answer)
