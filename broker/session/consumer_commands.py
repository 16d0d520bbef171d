"""Handlers of SUBSCRIBE, FLOW, ACK, SEEK and the other commands of consumers.

Source: Pulsar binary protocol, section Consumer.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import (
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
from ...wire import replies
from ...wire.message_id import signed_64
from ...wire.payload import open_payload
from ...wire.position import Position
from ...wire.pulsar_api_pb2 import (
    CommandAck,
    CommandCloseConsumer,
    CommandConsumerStats,
    CommandFlow,
    CommandGetLastMessageId,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSubscribe,
    CommandUnsubscribe,
    MessageIdData,
)
from ...wire.topic_name import parse_topic_name
from ..dispatch.shared import SharedDispatcher
from ..errors import error_code
from ..schemas.bytes_only import check_schema
from ..storage.cursors.cursor import Ack, MemoryCursor
from ..storage.cursors.names import check_name, check_properties, check_text, is_internal
from ..storage.journal.batch import Done
from ..topics.compaction_rules import last_batch_index
from ..topics.consumer import Consumer
from ..topics.subscription import Subscription
from ..topics.subscription_types import check_kind
from ..topics.topic import Topic
from .consumer_stats import consumer_stats_response
from .message_id_batches import apply_in_batches

if TYPE_CHECKING:
    from .connection import Connection

log = logging.getLogger(__name__)


def subscribe(connection: Connection, command: CommandSubscribe) -> None:
    """Create a consumer; one that is there already is confirmed again."""
    id_ = command.consumer_id
    if id_ in connection.consumers:
        connection.reply(replies.success(command.request_id))
    elif id_ in connection.consumers.opening:
        connection.fail(command.request_id, ServiceNotReady("Consumer is already present on the connection"))
    else:
        connection.consumers.begin(id_, connection.start(command.request_id, _create(connection, command)))


async def _create(connection: Connection, command: CommandSubscribe) -> None:
    broker = connection.broker
    _check(command)
    name = parse_topic_name(command.topic)
    topic = await broker.topic(name, create=command.force_topic_creation)
    subscription = await _subscription(connection, topic, command)
    with subscription.joining():
        await subscription.ready()
        rollback_s = command.start_message_rollback_duration_sec
        if rollback_s > 0:
            since = broker.now_ms() - rollback_s * 1000
            await subscription.seek(topic.log.next_position(await topic.log.position_before_time(since)))
        while (holder := subscription.holder(command.subType)) is not None:
            if await holder.connection.is_alive():
                raise ConsumerBusy("Exclusive consumer is already connected")
            holder.detach()  # its connection is being closed, which may take a while
        topic.check_has(subscription)  # nothing is awaited from here on: who has SUCCESS is attached
        _join(connection, subscription, command)


def _join(connection: Connection, subscription: Subscription, command: CommandSubscribe) -> None:
    """Attach a new consumer and answer; nothing waits in here, so what was checked before still holds."""
    if connection.is_closed:
        # It ended while this waited, and was released already: a consumer made now would never be removed.
        raise ConnectionResetError(f"{connection} ended while it subscribed to {subscription.topic.name}")
    subscription.check_open()
    consumer_name = command.consumer_name or secrets.token_hex(5)
    consumer = Consumer(subscription, connection, command, consumer_name)
    connection.reply(replies.success(command.request_id))  # before the first message
    connection.consumers.add(consumer)
    subscription.add_consumer(consumer, command.subType)


def _check(command: CommandSubscribe) -> None:
    check_text("a topic's name", command.topic)
    check_name("a subscription's name", command.subscription)
    check_name("a consumer's name", command.consumer_name)
    check_properties("subscription property", {pair.key: pair.value for pair in command.subscription_properties})
    check_properties("consumer property", {pair.key: pair.value for pair in command.metadata})
    if not command.subscription.strip():
        raise ProducerBusy("Empty subscription name")
    if is_internal(command.subscription):
        raise ProducerBusy("Subscription with reserved subscription name attempted")
    check_kind(command.subType)
    if command.read_compacted and command.subType not in (CommandSubscribe.Exclusive, CommandSubscribe.Failover):
        raise NotAllowed("readCompacted only allowed on failover or exclusive subscriptions")
    if command.HasField("schema"):
        check_schema(command.schema)
    if command.HasField("keySharedMeta") and command.keySharedMeta.hashRanges:
        raise NotAllowed("hash ranges of Key_Shared are not supported by this broker yet")


async def _subscription(connection: Connection, topic: Topic, command: CommandSubscribe) -> Subscription:
    """Return the subscription, created if need be."""
    name = command.subscription
    existing = topic.subscriptions.get(name)
    if existing is not None and existing.is_durable != command.durable:
        kind = "durable" if existing.is_durable else "non-durable"
        raise NotAllowed(f"Subscription {name} exists and is {kind}")
    if not command.durable:
        return existing or _non_durable(topic, command)
    if existing is None and not connection.broker.may_create_subscription(topic.name):
        raise SubscriptionNotFound("Subscription does not exist")
    position = "earliest" if command.initialPosition == CommandSubscribe.Earliest else "latest"
    properties = {pair.key: pair.value for pair in command.subscription_properties}
    return await topic.create_subscription(
        name,
        position,  # type: ignore[arg-type]
        properties,
        compacted=command.read_compacted,
    )


def _non_durable(topic: Topic, command: CommandSubscribe) -> Subscription:
    """Return a new subscription in memory, which begins where the reader says, that entry included."""
    topic.check_loaded()
    start = topic.start_of("latest")
    if command.HasField("start_message_id"):
        wanted = _position(command.start_message_id)
        if wanted <= topic.log.last_confirmed:
            start = topic.start_of(wanted, compacted=command.read_compacted)
        elif command.initialPosition == CommandSubscribe.Earliest:
            start = topic.start_of("earliest", compacted=command.read_compacted)
    properties = {pair.key: pair.value for pair in command.subscription_properties}
    cursor = MemoryCursor(topic.log, command.subscription, start, properties)
    subscription = topic.subscriptions[command.subscription] = Subscription(topic, cursor, is_durable=False)
    return subscription


def _position(data: MessageIdData) -> Position:
    return Position(signed_64(data.ledgerId), signed_64(data.entryId))


def flow(connection: Connection, command: CommandFlow) -> None:
    """Take permits; for a consumer that is not there they are lost."""
    consumer = connection.consumers.get(command.consumer_id)
    if consumer is None:
        return
    if not command.messagePermits:
        raise ProtocolError(f"FLOW of 0 permits to consumer {command.consumer_id}")
    consumer.add_permits(command.messagePermits)
    consumer.subscription.wake()


def ack(connection: Connection, command: CommandAck) -> None:
    """Acknowledge; the response, where one is asked for, waits for the disk."""
    id_ = command.consumer_id
    consumer = connection.consumers.get(id_)
    if consumer is None:
        return
    done = _ack_answer(connection, id_, command.request_id) if command.HasField("request_id") else None
    if command.HasField("txnid_least_bits"):
        if done is not None:
            done(NotAllowed("transactions are not supported by this broker"))
        return
    ids = command.message_id
    inside_batches = connection.config.acknowledge_inside_batches
    if command.ack_type == CommandAck.Individual:
        apply_in_batches(
            connection,
            consumer.subscription,
            ids,
            lambda batch, told: consumer.subscription.acknowledge(consumer, _acks(batch, inside_batches), told),
            done,
        )
    elif len(ids) == 1:
        if inside_batches or not ids[0].ack_set:
            consumer.subscription.acknowledge_up_to(consumer, _position(ids[0]), ids[0].ack_set or None, done)
        elif done is not None:
            done(None)
    else:
        log.warning("%r: a cumulative acknowledgement of %d ids is ignored, it has 1", consumer, len(ids))
        if done is not None:
            done(None)


def _acks(ids: Sequence[MessageIdData], inside_batches: bool) -> list[Ack]:
    # An ack set stays the message's own container: the cursor takes of it what the entry's batch can have.
    acks: list[Ack] = []
    for data in ids:
        words = data.ack_set
        if not words:
            acks.append((Position(data.ledgerId, data.entryId), None))
        elif inside_batches:
            acks.append((Position(data.ledgerId, data.entryId), words))
    return acks


class _ack_answer:
    __slots__ = ("connection", "consumer_id", "request_id")

    def __init__(self, connection: Connection, consumer_id: int, request_id: int):
        self.connection = connection
        self.consumer_id = consumer_id
        self.request_id = request_id

    def __call__(self, error: Exception | None) -> None:
        failure = None if error is None else error_code(error)
        self.connection.reply(replies.ack_response(self.consumer_id, self.request_id, failure))


def redeliver(connection: Connection, command: CommandRedeliverUnacknowledgedMessages) -> None:
    """Give out again what a consumer holds: the entries named, or all."""
    consumer = connection.consumers.get(command.consumer_id)
    if consumer is None or consumer.subscription.dispatcher is None:
        return
    dispatcher = consumer.subscription.dispatcher
    epoch = command.consumer_epoch if command.HasField("consumer_epoch") else None
    if not command.message_ids or not isinstance(dispatcher, SharedDispatcher):
        dispatcher.redeliver(consumer, None, epoch)
        return

    def apply(batch: Sequence[MessageIdData], _: Done | None) -> None:
        dispatcher.redeliver(consumer, [Position(data.ledgerId, data.entryId) for data in batch], epoch)

    apply_in_batches(connection, consumer.subscription, command.message_ids, apply)


def unsubscribe(connection: Connection, command: CommandUnsubscribe) -> None:
    """Delete the subscription of a consumer."""
    consumer = _consumer(connection, command)
    if consumer is not None:
        connection.start(command.request_id, _unsubscribe(connection, consumer, command))


async def _unsubscribe(connection: Connection, consumer: Consumer, command: CommandUnsubscribe) -> None:
    await consumer.subscription.unsubscribe(consumer, force=command.force)
    connection.reply(replies.success(command.request_id))


def _consumer(
    connection: Connection, command: CommandUnsubscribe | CommandSeek | CommandGetLastMessageId
) -> Consumer | None:
    consumer = connection.consumers.get(command.consumer_id)
    if consumer is None:
        connection.fail(command.request_id, MetadataError("Consumer not found"))
    return consumer


def close_consumer(connection: Connection, command: CommandCloseConsumer) -> None:
    """Close a consumer; an id that nobody has is closed already."""
    consumer = connection.consumers.close(command.consumer_id)
    if consumer is not None:
        consumer.detach()
    connection.reply(replies.success(command.request_id))


def seek(connection: Connection, command: CommandSeek) -> None:
    """Move a consumer's subscription to an entry or a time."""
    consumer = _consumer(connection, command)
    if consumer is None:
        return
    if not command.HasField("message_id") and not command.HasField("message_publish_time"):
        error = MetadataError("Message id and message publish time were not present")
        connection.fail(command.request_id, error)
        return
    connection.start(command.request_id, _seek(connection, consumer, command))


async def _seek(connection: Connection, consumer: Consumer, command: CommandSeek) -> None:
    subscription = consumer.subscription
    topic = subscription.topic
    words = None
    try:
        if command.HasField("message_id"):
            mark = topic.start_of(_position(command.message_id), compacted=consumer.reads_compacted)
            # The compacted view may have an entry there, even if the log has none any more.
            behind = Position(mark.ledger_id, mark.entry_id + 1)
            position = behind if consumer.reads_compacted else topic.log.next_position(mark)
            if connection.config.acknowledge_inside_batches and position == _position(command.message_id):
                words = command.message_id.ack_set or None
        else:
            mark = await topic.log.position_before_time(command.message_publish_time)
            position = topic.log.next_position(mark)
            if consumer.reads_compacted and position <= topic.log.first_position:
                position = topic.log.first_compacted
        await subscription.seek(position, words)
    except StorageError as error:
        raise UnknownBrokerError(f"Error when resetting subscription: {error}") from error
    connection.reply(replies.success(command.request_id))


def last_message_id(connection: Connection, command: CommandGetLastMessageId) -> None:
    """Tell the last message of a consumer's topic."""
    consumer = _consumer(connection, command)
    if consumer is not None:
        connection.start(command.request_id, _last_message_id(connection, consumer, command.request_id))


async def _last_message_id(connection: Connection, consumer: Consumer, request_id: int) -> None:
    topic = consumer.subscription.topic
    last = topic.log.last_confirmed
    batch_index = -1
    view = topic.log.view if consumer.reads_compacted else None
    if view is not None and last <= view.horizon:
        entry = await view.last()
        last = Position(-1, -1)
        if entry is not None:
            last, batch_index = entry.position, last_batch_index(entry.payload, connection.config.max_message_bytes)
    elif topic.log.entry_count:
        entries = await topic.log.load(last, 1, 1)
        if entries and entries[0].position == last:
            metadata, _ = open_payload(entries[0].payload)
            if metadata.HasField("num_messages_in_batch"):
                batch_index = metadata.num_messages_in_batch - 1
        else:  # deleted meanwhile
            last = Position(-1, -1)
    else:
        last = Position(-1, -1)
    connection.reply(
        replies.last_message_id(
            request_id, last, topic.name.partition, batch_index, consumer.subscription.cursor.mark_delete
        )
    )


def consumer_stats(connection: Connection, command: CommandConsumerStats) -> None:
    """Tell the counters of a consumer."""
    consumer = connection.consumers.get(command.consumer_id)
    if consumer is None:
        raise ProtocolError(f"CONSUMER_STATS of consumer {command.consumer_id}, which is not there")
    connection.reply(replies.consumer_stats(consumer_stats_response(consumer, command.request_id)))
