"""A consumer's commands: SUBSCRIBE from a ConsumerConfig, and commands for entries and positions.

Source: Pulsar binary protocol, section Consumer.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...wire import pulsar_api_pb2 as pb
from ...wire.message_id import MessageId, from_data, to_data
from ..config import ConsumerConfig, ConsumerKeySharedPolicy
from ..connections.connection import Connection
from .start import StartPosition


def subscribe_command(
    config: ConsumerConfig, topic: str, subscription: str, start: MessageId | None = None
) -> pb.CommandSubscribe:
    """Return SUBSCRIBE without consumer id and request id.

    Args:
        config: the consumer's settings.
        topic: full name.
        subscription: subscription name.
        start: start position of a non-durable subscription; None makes it durable.
    """
    policy = config.key_shared_policy
    return pb.CommandSubscribe(
        topic=topic,
        subscription=subscription,
        subType=config.type,
        consumer_name=config.name or "",
        priority_level=config.priority_level,
        durable=start is None,
        start_message_id=None if start is None else to_data(start),
        metadata=[pb.KeyValue(key=key, value=value) for key, value in config.properties.items()],
        keySharedMeta=None if policy is None else _key_shared(policy),
        read_compacted=config.read_compacted,
        replicate_subscription_state=config.replicate_subscription_state_enabled or None,
        initialPosition=config.initial_position,
        subscription_properties=[
            pb.KeyValue(key=key, value=value) for key, value in config.subscription_properties.items()
        ],
    )


def _key_shared(policy: ConsumerKeySharedPolicy) -> pb.KeySharedMeta:
    return pb.KeySharedMeta(
        keySharedMode=pb.KeySharedMode.STICKY if policy.sticky_ranges else pb.KeySharedMode.AUTO_SPLIT,
        hashRanges=[pb.IntRange(start=first, end=last) for first, last in policy.sticky_ranges],
        allowOutOfOrderDelivery=policy.allow_out_of_order_delivery,
    )


def redeliver(
    consumer_id: int, positions: Iterable[tuple[int, int]], epoch: int | None
) -> pb.CommandRedeliverUnacknowledgedMessages:
    """Return REDELIVER_UNACKNOWLEDGED_MESSAGES for (ledger, entry) positions; an empty sequence means all."""
    return pb.CommandRedeliverUnacknowledgedMessages(
        consumer_id=consumer_id,
        message_ids=[to_data(MessageId(*position)) for position in positions],
        consumer_epoch=epoch,
    )


def seek(consumer_id: int, target: StartPosition | int) -> pb.CommandSeek:
    """Return SEEK to a message, or to a publish time in milliseconds, without a request id."""
    if isinstance(target, int):
        return pb.CommandSeek(consumer_id=consumer_id, message_publish_time=target)
    return pb.CommandSeek(consumer_id=consumer_id, message_id=target.entry_data())


def ack_damaged(consumer_id: int, position: tuple[int, int], error: int) -> pb.CommandAck:
    """Return ACK of an unreadable entry; ``error`` is a CommandAck.ValidationError."""
    return pb.CommandAck(
        consumer_id=consumer_id,
        ack_type=pb.CommandAck.Individual,
        message_id=[pb.MessageIdData(ledgerId=position[0], entryId=position[1])],
        validation_error=error,  # type: ignore[arg-type]  # the protocol's number itself
    )


async def ask_last(
    connection: Connection, consumer_id: int, topic: str, partition: int
) -> tuple[MessageId, MessageId | None]:
    """Return the newest message's id, and the subscription's mark-delete position if the broker sends it.

    Cancellation: safe.
    """
    answer: pb.CommandGetLastMessageIdResponse = await connection.request(
        f"last message id of {topic}", pb.CommandGetLastMessageId(consumer_id=consumer_id)
    )
    last = from_data(answer.last_message_id)
    if last.batch_index >= 0:
        last = last._replace(batch_size=last.batch_index + 1)
    last = last._replace(partition=partition)
    if not answer.HasField("consumer_mark_delete_position"):
        return last, None
    return last, from_data(answer.consumer_mark_delete_position)
